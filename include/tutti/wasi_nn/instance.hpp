// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One guest's view of the library: graphs, execution contexts and sessions behind handles that mean nothing to others.

#include <tutti/wasi_nn/control.hpp>
#include <tutti/wasi_nn/device.hpp>
#include <tutti/wasi_nn/execution.hpp>
#include <tutti/wasi_nn/flavour.hpp>
#include <tutti/wasi_nn/registry.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

/// Thread-safe. Errors of all calls: Failure, Error, std::bad_alloc. After the constructor nothing throws anything
/// else.
class Instance {
 public:
  /// `settings`: a document of the backend.
  Instance(Registry registry, Flavour flavour, std::string_view settings)
      : registry_(std::move(registry)), flavour_(flavour), log_(std::make_shared<Log>()) {
    Document::parse(flavour.defaults, Level::backend).apply(settings_);
    registry_.limits().lower(settings_);
    Document::parse(registry_.settings(), Level::backend).apply(settings_);
    Document::parse(settings, Level::backend).apply(settings_);
    registry_.limits().limit(settings_);
    Settings whole = settings_;
    settle(whole);
    max_sessions_ = settings_.max_sessions, idle_timeout_ms_ = settings_.idle_timeout_ms;
    auto_cleanup_ = settings_.auto_cleanup;
    log_->configure(log_options(settings_, registry_.log_file(settings_.log_file)));
    (*log_)(LogLevel::info, concat("backend ", number_, ": ", registry_.size(), " models are registered"));
  }
  Instance(Instance const&) = delete;
  Instance& operator=(Instance const&) = delete;
  /// Ends whatever runs. Blocking until the services have let go.
  ~Instance() {
    stop();
    for (auto const& [name, session] : sessions_) try {
        forget(*session);
      } catch (std::bad_alloc const&) {  // nobody has its name any more, and its cache is overwritten in its turn
      }
  }

  /// Ends the answers that are being made; the calls that wait for them return.
  void stop() noexcept {
    std::map<std::uint32_t, std::shared_ptr<Execution>> running;
    {
      std::lock_guard const guard(mutex_);
      running.swap(executions_);
    }
    for (auto const& [handle, execution] : running) execution->close();
  }

  Log& log() noexcept { return *log_; }

  /// A model from its bytes, or from its registered name or an allowed path, written as bytes ("preload:" may stand in
  /// front); then settings of the model, where there is a second part. Both whatever encoding is said: GGUF, and ONNX
  /// of this library, are recognised by their first bytes. Targets: 0 processor, 1 GPU, 2 TPU, 3 any.
  std::uint32_t load(std::span<std::span<std::byte const> const> parts, std::uint32_t encoding, std::uint32_t target) {
    Device const device = target_device(target);
    if (parts.empty() || parts.size() > 2)
      throw Failure(Code::invalid_argument,
                    concat("a model has one part or two (GGUF, ONNX or its name, settings), not ", parts.size()));
    if (parts[0].empty()) throw Failure(Code::invalid_argument, "the model is empty");
    std::string_view const text(reinterpret_cast<char const*>(parts[0].data()), parts[0].size());
    std::string config;  // a copy: guests have threads that write where they have let us read
    if (parts.size() == 2)
      config.assign(reinterpret_cast<char const*>(parts[1].data()),
                    std::min(parts[1].size(), Document::most_bytes + 1));
    if (text.starts_with("GGUF") || io::begins_as_onnx(text)) {
      if (!registry_.takes_bytes())
        throw Failure(Code::security, "the host does not let guests bring models of their own");
      Settings settings = model_settings(config, "", "guest's own", device);
      ChosenDevice const chosen = choose_device(settings.device, settings.n_gpu_layers);
      static_cast<void>(MemoryBudget::take({.weights = static_cast<std::int64_t>(text.size())},
                                           settings.max_memory_mb << 20, memory_advice));  // before it is copied
      auto loaded = std::make_shared<ModelFile>(infer::load_model(parts[0], concat("model of backend ", number_)));
      settings.use_mmap = false;
      auto model = std::make_shared<Model>(std::move(loaded), settings, chosen.gpu, log_);
      return add(std::move(model), std::move(settings), chosen);
    }
    if (std::string const what = io::foreign_model(text); !what.empty())
      throw Failure(Code::invalid_encoding, io::foreign_model_sentence("the guest's model", what));
    std::string name(text.substr(0, 4097));  // a copy too
    bool const is_name = name.size() <= 4096 && std::all_of(name.begin(), name.end(), [](char c) {
                           return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
                         });
    if (!is_name) {
      static constexpr std::array<char const*, 5> formats = {"OpenVINO", "ONNX", "TensorFlow", "PyTorch",
                                                             "TensorFlow Lite"};
      throw Failure(
          Code::invalid_encoding,
          concat("the model is neither a GGUF file nor an ONNX file of tutti",
                 encoding < formats.size() ? concat(" (the call says ", formats[encoding], ")") : std::string(),
                 ". Convert it to GGUF with ./tutti convert"));
    }
    if (name.starts_with("preload:")) name.erase(0, 8);
    return load_by_name(name, config, device);
  }
  /// Errors: Failure, model_not_found among others.
  std::uint32_t load_by_name(std::string_view name, std::string_view config, Device device = Device::automatic) {
    if (name.find('\0') != std::string_view::npos || name.size() > 4096)
      throw Failure(Code::invalid_argument, "a model's name has a zero byte in it, or more than 4096 bytes");
    Registry::Model const found = registry_.find(std::string(name));
    Settings settings = model_settings(config, found.settings, name, device);
    ChosenDevice const chosen = choose_device(settings.device, settings.n_gpu_layers);
    if (found.by_path) settings.use_mmap = false;  // a mapped file that shrinks would end the process
    auto model = ModelCache::get(found.path, settings, chosen.gpu, log_);
    return add(std::move(model), std::move(settings), chosen);
  }
  /// The graph goes; contexts keep the model until they are finalised.
  void unload(std::uint32_t graph) {
    std::lock_guard const guard(mutex_);
    if (graphs_.erase(graph) == 0) throw unknown("graph", graph);
    if (current_ == graph) current_ = 0;
  }

  std::uint32_t open(std::uint32_t graph) {
    std::lock_guard const guard(mutex_);
    auto const found = graphs_.find(graph);
    if (found == graphs_.end()) throw unknown("graph", graph);
    return open(found->second, found->second->settings.session);
  }
  /// A context of the model loaded last, in the session of that name.
  std::uint32_t open_session(std::string_view name) {
    if (name.empty() || name.size() > 256) throw Failure(Code::invalid_argument, "a session's name has 1 to 256 bytes");
    std::lock_guard const guard(mutex_);
    return open(current(), std::string(name));
  }
  void close(std::uint32_t context) {
    std::shared_ptr<Execution> execution;
    {
      std::lock_guard const guard(mutex_);
      auto const found = executions_.find(context);
      if (found == executions_.end()) throw unknown("execution context", context);
      execution = std::move(found->second);
      executions_.erase(found);
    }
    execution->close();
    std::shared_ptr<Session> session = execution->session(), own = execution->own_session();
    execution.reset();
    std::lock_guard const guard(mutex_);
    if (own == session) own.reset();
    else leave(std::move(own));
    leave(std::move(session));
  }

  /// Inputs: 0 prompt, 1 options (session level), 2 tokens, 3 control (control.hpp).
  template <class Read>
  void set_input(std::uint32_t context, std::uint32_t index, Read&& read) {
    auto const execution = find(context);
    noting(*execution, [&] {
      GuestTensor const tensor = read();
      std::string const& text = tensor.data;
      switch (index) {
        case 0:
          if (flavour_.one_model) follow(*execution);
          return execution->set_prompt(text);
        case 1:
          return execution->set_options(text, [&](std::string const& name) {
            std::lock_guard const guard(mutex_);
            return session_of(name);
          });
        case 2: {
          if (!tensor.is_i32 || text.size() % sizeof(std::int32_t) != 0)
            throw Failure(Code::invalid_argument, "input 2 must be a tensor of i32: tokens");
          std::vector<std::int32_t> ids(text.size() / sizeof(std::int32_t));
          std::memcpy(ids.data(), text.data(), text.size());
          return execution->set_tokens(std::move(ids));
        }
        case 3: return control(*execution, registry_, text);
        default: throw Failure(Code::invalid_argument, concat("there is no input ", index, ". There are 0 to 3"));
      }
    });
  }
  Code compute(std::uint32_t context) {
    auto const execution = find(context);
    return noting(*execution, [&] { return execution->compute(); });
  }
  Code compute_single(std::uint32_t context) {
    auto const execution = find(context);
    return noting(*execution, [&] { return execution->compute_single(); });
  }
  void fini_single(std::uint32_t context) {
    auto const execution = find(context);
    noting(*execution, [&] { execution->fini_single(); });
  }
  /// An answer in a context of a session, with settings of this run alone; by the model that was loaded last.
  std::string run(std::uint32_t context, std::string_view prompt, std::string_view config) {
    auto const execution = find(context);
    return noting(*execution, [&] {
      Document const document = Document::parse(config, Level::run, flavour_.minus_one_keeps);
      follow(*execution);
      return execution->run(prompt, document).second;
    });
  }
  std::string output(std::uint32_t context, std::uint32_t index) { return find(context)->output(index); }
  std::string output_single(std::uint32_t context, std::uint32_t index) { return find(context)->output_single(index); }

 private:
  static Failure unknown(char const* what, std::uint32_t handle) {
    return Failure(Code::invalid_argument, concat("there is no ", what, " ", handle));
  }
  /// Never the same twice in a process, and hard to guess.
  static std::uint32_t handle() {
    static std::atomic<std::uint32_t> next{std::random_device{}() >> 1};
    std::uint32_t const one = next.fetch_add(1 + (std::random_device{}() & 0xff));
    return one != 0 ? one : next.fetch_add(1);
  }

  /// `name` is what the model is called where nothing else is said; `device` goes before the documents, but any.
  Settings model_settings(std::string_view config, std::string_view registered, std::string_view name, Device device) {
    Settings settings = settings_;
    Document::parse(registered, Level::model).apply(settings);
    Document document = Document::parse(config, Level::model);
    if (!flavour_.trusted) document.leave_log();
    document.apply(settings);
    if (!flavour_.trusted) hold_log(settings, settings_);
    if (device != Device::automatic) settings.device = device;
    registry_.limits().limit(settings);
    settle(settings);
    registry_.log_file(settings.log_file);
    if (settings.name.empty()) settings.name = name;
    return settings;
  }
  std::uint32_t add(std::shared_ptr<Model> model, Settings settings, ChosenDevice const& chosen) {
    if (settings.device == Device::gpu && model->gpu().empty())
      throw Failure(Code::too_large, "a GPU is asked for, and its free memory holds no layer. Lower n_ctx or "
                                     "max_concurrent, or load for CPU");
    std::string where = chosen.on(model->gpu());
    auto graph = std::make_shared<Graph const>(
        Graph{std::move(model), std::move(settings), registry_.limits(), std::move(where)});
    try {  // what every answer would refuse is refused now
      Execution(graph, std::make_shared<Session>()).check();
    } catch (Error const& error) {  // a grammar or a pattern, whatever kind of error it is
      throw Failure(Code::invalid_argument, error.message());
    }
    std::map<std::uint32_t, std::shared_ptr<Graph const>> before;  // ends when others may go on
    std::lock_guard const guard(mutex_);
    if (auto const most = settings_.max_models; !flavour_.one_model && std::cmp_greater_equal(graphs_.size(), most))
      throw Failure(Code::too_large, concat(most, " models are loaded, as many as the host allows. Unload some"));
    std::map<std::uint32_t, std::shared_ptr<Graph const>> loaded{{handle(), graph}};
    while (graphs_.count(loaded.begin()->first) != 0) loaded = {{handle(), graph}};
    log_->configure(log_options(graph->settings, registry_.log_file(graph->settings.log_file)));
    (*log_)(LogLevel::info, "model '" + graph->settings.name + "': " + graph->device);
    // Nothing fails any more. Sessions are the instance's: what the model loaded last says of them holds.
    max_sessions_ = graph->settings.max_sessions, idle_timeout_ms_ = graph->settings.idle_timeout_ms;
    auto_cleanup_ = graph->settings.auto_cleanup;
    current_ = loaded.begin()->first;
    if (flavour_.one_model) graphs_.swap(before);
    graphs_.merge(loaded);
    if (flavour_.one_model)
      for (auto const& [handle, execution] : executions_) execution->use_if_idle(graph);
    return current_;
  }

  // Under mutex_:

  std::shared_ptr<Graph const> current() const {
    auto const found = graphs_.find(current_);
    if (found == graphs_.end()) throw Failure(Code::runtime_error, "no model is loaded");
    return found->second;
  }
  /// Without a name the context has a session of its own.
  std::uint32_t open(std::shared_ptr<Graph const> graph, std::string const& name) {
    if (executions_.size() >= 10'000) throw Failure(Code::too_large, "10,000 contexts are open. Finalise some");
    auto const execution =
        std::make_shared<Execution>(std::move(graph), name.empty() ? new_session() : session_of(name));
    for (;;)
      if (std::uint32_t const context = handle(); executions_.emplace(context, execution).second) return context;
  }
  std::shared_ptr<Session> new_session() {
    auto session = std::make_shared<Session>();
    session->name = concat(number_, "/", next_session_++);
    return session;
  }
  std::shared_ptr<Session> session_of(std::string const& name) {
    if (auto const found = sessions_.find(name); found != sessions_.end()) return found->second;
    make_room();
    return sessions_.emplace(name, new_session()).first->second;
  }
  void make_room() {
    auto const limit = static_cast<std::size_t>(max_sessions_);
    if (!auto_cleanup_) {
      if (sessions_.size() >= limit)
        throw Failure(Code::busy,
                      concat("there are ", limit, " sessions, as many as may be. Close some, or set auto_cleanup"));
      return;
    }
    auto const now = std::chrono::steady_clock::now();
    auto const idle = std::chrono::milliseconds(idle_timeout_ms_);
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      bool const old = give_up(*at->second, [&](Session const& one) { return now - one.used > idle; });
      at = old ? sessions_.erase(at) : std::next(at);
    }
    while (sessions_.size() >= limit) {
      auto oldest = sessions_.end();
      for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
        std::lock_guard const guard(at->second->mutex);
        if (!at->second->answering && (oldest == sessions_.end() || at->second->used < oldest->second->used))
          oldest = at;
      }
      if (oldest == sessions_.end())
        throw Failure(Code::busy, concat("all of ", limit, " sessions are answering. Come again later"));
      if (give_up(*oldest->second, [](Session const&) { return true; })) sessions_.erase(oldest);
    }
  }
  template <class If>
  bool give_up(Session& session, If&& condition) {
    {
      std::lock_guard const guard(session.mutex);
      if (session.answering || !condition(session)) return false;
      session.gone = true;
    }
    forget(session);
    (*log_)(LogLevel::info, "session " + session.name + " is given up");
    return true;
  }
  /// Caches of a session that ended are no use to anyone.
  void forget(Session const& session) {
    for (auto const& [handle, graph] : graphs_) graph->model->service().forget(session.name);
  }
  /// A session that no context has any more goes, unless it has a name by which it may come back.
  void leave(std::shared_ptr<Session> session) {
    auto const named =
        std::find_if(sessions_.begin(), sessions_.end(), [&](auto const& one) { return one.second == session; });
    if (named != sessions_.end() && (auto_cleanup_ || session.use_count() > 2)) return;
    forget(*session);
    if (named != sessions_.end()) sessions_.erase(named);
  }

  // Not under mutex_:

  std::shared_ptr<Execution> find(std::uint32_t context) {
    std::lock_guard const guard(mutex_);
    auto const found = executions_.find(context);
    if (found == executions_.end()) throw unknown("execution context", context);
    return found->second;
  }
  /// Goes on with the model that was loaded last.
  void follow(Execution& execution) {
    std::shared_ptr<Graph const> graph;
    {
      std::lock_guard const guard(mutex_);
      graph = current();
    }
    execution.use(std::move(graph));
  }
  /// What fails is kept for the context's status.
  template <class F>
  auto noting(Execution& execution, F&& f) -> decltype(f()) {
    try {
      return f();
    } catch (Error const& error) {
      execution.failed(error.message());
      // There is no model to be damaged here: it is a grammar or a pattern.
      if (error.kind() == ErrorKind::format) throw Failure(Code::invalid_argument, error.message());
      throw;
    } catch (...) {
      execution.failed(current_failure().second);
      throw;
    }
  }

  inline static std::atomic<std::uint64_t> instances_{0};
  std::uint64_t number_ = ++instances_;
  Registry registry_;
  Flavour flavour_;
  Settings settings_;  // of the backend
  std::int64_t max_sessions_ = 0, idle_timeout_ms_ = 0;
  bool auto_cleanup_ = true;
  std::shared_ptr<Log> log_;
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Graph const>> graphs_;
  std::uint32_t current_ = 0;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
  std::uint64_t next_session_ = 1;
  std::map<std::uint32_t, std::shared_ptr<Execution>> executions_;
};

}  // namespace tutti::wasi_nn
