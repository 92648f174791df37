// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Execution contexts: input, options, answer and outputs.

#include <tutti/wasi_nn/document.hpp>
#include <tutti/wasi_nn/session.hpp>
#include <tutti/wasi_nn/status.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

/// An execution context: an input, options, and what the last answer was. Thread-safe; a call that finds another one at
/// work fails as busy, but `cancel`.
class Execution {
 public:
  Execution(std::shared_ptr<Graph const> graph, std::shared_ptr<Session> session)
      : graph_(std::move(graph)), own_(std::move(session)), session_(own_) {}

  std::shared_ptr<Session> session() const {
    std::lock_guard const guard(mutex_);
    return session_;
  }
  std::shared_ptr<Session> const& own_session() const noexcept { return own_; }
  /// Goes on with another model from the next answer on.
  void use(std::shared_ptr<Graph const> graph) {
    Busy const busy(working_);
    std::lock_guard const guard(mutex_);
    if (!streaming_) graph_ = std::move(graph);
  }
  /// At once, where nothing is at work here: idle contexts keep no model that was swapped, and the status of an answer
  /// as it was.
  void use_if_idle(std::shared_ptr<Graph const> graph) noexcept try {
    std::unique_lock const lock(working_, std::try_to_lock);
    if (!lock || streaming_) return;
    if (done_ && told_.empty()) told_ = status();
    std::lock_guard const guard(mutex_);
    graph_.swap(graph);
  } catch (std::bad_alloc const&) {  // later, then
  }

  /// Errors: Failure, prompt_too_long for more than 64 bytes a token of the context.
  void set_prompt(std::string_view text) {
    Busy const busy(working_);
    check_prompt(*graph_->model, text);
    std::vector<data::ChatMessage> history;
    {
      std::lock_guard const guard(session_->mutex);
      history = session_->messages;
    }
    take(std::string(text), tokens_of(text, settings(options_, {}), history), false);
  }
  /// Blocking: the answer to a prompt with settings of this run alone. Code: as of compute.
  std::pair<Code, std::string> run(std::string_view text, Document const& document) {
    Busy const busy(working_);
    check_prompt(*graph_->model, text);
    Settings s = settings(options_, document);
    Turn const turn(session_);
    std::vector<std::int32_t> ids = prompt_tokens(text, s);
    take(std::string(text), ids, false);
    begin(std::move(s), std::move(ids), {});
    Code const code = finish();
    return {code, done_->text};
  }
  /// Errors: Failure, invalid_argument for a token that is none.
  void set_tokens(std::vector<std::int32_t> ids) {
    Busy const busy(working_);
    if (ids.empty()) throw Failure(Code::invalid_argument, "there are no tokens");
    for (std::int32_t const id : ids)
      if (id < 0 || id >= graph_->model->tokenizer().vocabulary())
        throw Failure(Code::invalid_argument,
                      concat("token ", id, " is outside the vocabulary of ", graph_->model->tokenizer().vocabulary()));
    fits(ids.size());
    take("", std::move(ids), true);
  }
  /// A document in place of all options said before. `session_of(name)` finds the session they name; without one it is
  /// its own. Errors: those of Document and the settings' rules; nothing changes then.
  template <class SessionOf>
  void set_options(std::string_view text, SessionOf&& session_of) {
    Busy const busy(working_);
    if (streaming_) throw Failure(Code::busy, "a stream runs: end it with fini_single");
    Document options = Document::parse(text, Level::session, false, {&graph_->settings, &graph_->model->settings()});
    Settings const s = settings(options, {});
    check(s);
    std::shared_ptr<Session> session =
        s.session.empty() || s.session == graph_->settings.session ? own_ : session_of(s.session);
    options_ = std::move(options);
    std::lock_guard const guard(mutex_);
    session_ = std::move(session);
  }
  /// Errors: what every answer with the graph's settings would end with.
  void check() const { check(settings({}, {})); }
  /// Ends the answer that is being made, if there is one.
  void cancel() {
    std::lock_guard const guard(mutex_);
    if (generation_) generation_->cancel();
  }
  /// Calls f(graph, session, notes) while nothing answers in the session. Errors: those of Turn and f.
  template <class F>
  void with_session(F&& f) {
    Busy const busy(working_);
    Turn const turn(session_);
    restored_.clear();
    f(*graph_, *session_, restored_);
  }

  /// Blocking: the whole answer. Code: success, or context_full with the answer kept.
  Code compute() {
    Busy const busy(working_);
    if (streaming_) throw Failure(Code::busy, "a stream runs: end it with fini_single");
    Turn const turn(session_);
    begin({});
    return finish();
  }
  /// Blocking: the next piece of the answer, for output 0. end_of_sequence and context_full give none.
  Code compute_single() {
    Busy const busy(working_);
    if (!streaming_) {
      if (stream_ended_) return *stream_ended_;
      Turn turn(session_);
      pieces_ = std::make_shared<Pieces>();
      begin(pieces_);
      turn_ = std::move(turn);
      streaming_ = true;
    }
    if (auto piece = pieces_->pop()) {
      piece_ = std::move(*piece);
      return Code::success;
    }
    piece_.clear();
    Code const code = finish_stream();
    stream_ended_ = code == Code::success ? Code::end_of_sequence : code;
    return *stream_ended_;
  }
  /// Ends a stream, at its end or before. Blocking until the service has let go.
  void fini_single() {
    Busy const busy(working_);
    if (streaming_) {
      cancel();
      finish_stream();
    }
    stream_ended_.reset();
    piece_.clear();
  }
  /// Ends whatever runs, for good: an answer that begins meanwhile ends at once.
  void close() noexcept try {
    {
      std::lock_guard const guard(mutex_);
      closed_ = true;
    }
    cancel();  // a call that waits for the answer goes on
    if (auto const generation = under_way()) generation->wait();
  } catch (...) {
  }

  /// Bytes of an output. Errors: Failure, invalid_argument (no such output), runtime_error (nothing was computed).
  std::string output(std::uint32_t index) {
    Busy const busy(working_);
    switch (index) {
      case 0: return need().text;
      case 1:
        return done_ ? usage(static_cast<std::size_t>(done_->prompt_tokens), done_->tokens.size())
                     : usage(ids_.size(), 0);
      case 2: return told_.empty() ? status() : told_;
      case 3: return bytes_of(need().logits);
      case 4: return bytes_of(need().tokens);
      default: throw Failure(Code::invalid_argument, concat("there is no output ", index, ". There are 0 to 4"));
    }
  }
  /// The last piece of a stream. Output 1 and 2 are those of `output`.
  std::string output_single(std::uint32_t index) {
    if (index != 0) return output(index);
    Busy const busy(working_);
    if (!streaming_ && !stream_ended_) throw Failure(Code::runtime_error, "no stream was begun with compute_single");
    return piece_;
  }
  /// What the status says of the last call that failed.
  void failed(std::string text) {
    std::lock_guard const guard(mutex_);
    error_ = std::move(text);
  }

 private:
  Settings settings(Document const& options, Document const& run) const {
    Settings s = graph_->settings;
    options.apply(s);
    run.apply(s);
    graph_->limits.limit(s);
    settle(s);
    return s;
  }
  void check(Settings const& s) const {
    chat_of(*graph_->model, s);
    std::vector<std::string> notes;
    infer::Request const request = request_of(s, *graph_->model, {0}, {}, notes);
    if (!request.grammar.empty()) infer::Grammar const grammar(request.grammar);
  }
  void fits(std::size_t tokens) const {
    if (static_cast<std::int64_t>(tokens) > graph_->model->settings().n_ctx)
      throw Failure(Code::prompt_too_long,
                    concat("the prompt has ", tokens, " tokens, and the context ", graph_->model->settings().n_ctx));
  }
  /// As encode_conversation. Errors: Failure, prompt_too_long.
  std::vector<std::int32_t> tokens_of(std::string_view text, Settings const& s,
                                      std::vector<data::ChatMessage>& history) const {
    std::vector<std::int32_t> ids = encode_conversation(*graph_->model, chat_of(*graph_->model, s), text, s, history);
    fits(ids.size());
    return ids;
  }
  void take(std::string text, std::vector<std::int32_t> ids, bool by_tokens) {
    if (streaming_) throw Failure(Code::busy, "a stream runs: end it with fini_single");
    prompt_ = std::move(text), ids_ = std::move(ids), by_tokens_ = by_tokens;
    done_.reset(), told_.clear();
    stream_ended_.reset();
    piece_.clear();
    std::lock_guard const guard(mutex_);
    error_.clear();
  }

  /// Of a prompt in this session, which loses the turns that had to be dropped when the answer begins.
  std::vector<std::int32_t> prompt_tokens(std::string_view text, Settings const& s) {
    std::unique_lock lock(session_->mutex);
    std::vector<data::ChatMessage> history = session_->messages;
    lock.unlock();
    dropped_ = history.size();
    std::vector<std::int32_t> ids = tokens_of(text, s, history);
    dropped_ -= history.size();
    return ids;
  }
  void begin(std::shared_ptr<Pieces> const& pieces) {
    if (ids_.empty()) throw Failure(Code::invalid_argument, "there is no input: set input 0 or 2 first");
    Settings s = settings(options_, {});
    std::vector<std::int32_t> ids = ids_;
    if (by_tokens_) fits(ids.size()), dropped_ = 0;
    else ids = prompt_tokens(prompt_, s);
    begin(std::move(s), std::move(ids), pieces);
  }
  void begin(Settings s, std::vector<std::int32_t> ids, std::shared_ptr<Pieces> const& pieces) {
    notes_ = graph_->model->notes();
    done_.reset(), told_.clear();
    chatting_ = !by_tokens_ && chat_of(*graph_->model, s).has_value();
    infer::Request request;
    {
      std::lock_guard const guard(session_->mutex);
      request = request_of(s, *graph_->model, std::move(ids), session_->pace, notes_);
    }
    request.session = s.share_prefix ? "" : session_->name;
    seed_ = request.sampling.seed;
    if (pieces) {
      request.on_text = [pieces](std::string_view piece) { pieces->push(piece); };
      // An answer that the context bounds goes on to its end and leaves its slot to others, whether it is read or not;
      // another pauses, and must not hold its slot for ever.
      std::size_t const most = s.context_shifting ? 64 : static_cast<std::size_t>(graph_->model->settings().n_ctx) + 1;
      request.ready = [pieces, most] { return !pieces->holds(most); };
      request.abandoned = [pieces, most, idle = std::chrono::milliseconds(s.idle_timeout_ms)] {
        return pieces->holds(most) && pieces->idle() > idle;
      };
      request.on_end = [pieces] { pieces->close(); };
    }
    used_ = std::move(s);
    graph_->model->tell(concat("session ", session_->name, " asks with ", request.prompt.size(), " tokens; ", dropped_,
                               " messages had no room; priority ", request.priority, ", seed ", seed_));
    for (std::string const& note : notes_) graph_->model->tell(note);
    auto generation = graph_->model->service().submit(std::move(request));
    if (std::size_t const gone = std::exchange(dropped_, 0); gone > 0) {
      std::lock_guard const guard(session_->mutex);
      session_->messages.erase(session_->messages.begin(),
                               session_->messages.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    std::lock_guard const guard(mutex_);
    if (closed_) generation->cancel();
    generation_ = std::move(generation);
    error_.clear();
  }
  bool is_closed() const {
    std::lock_guard const guard(mutex_);
    return closed_;
  }
  std::shared_ptr<infer::Generation> under_way() const {
    std::lock_guard const guard(mutex_);
    return generation_;
  }
  Code finish() {
    std::shared_ptr<infer::Generation> const generation = under_way();
    auto const forget = [&] {
      std::lock_guard const guard(mutex_);
      generation_.reset();
    };
    try {
      done_ = generation->wait();
    } catch (...) {
      forget();
      throw;
    }
    forget();
    if (used_.embedding) {
      done_->text = embedding_text(done_->embedding);
      return Code::success;
    }
    std::lock_guard const guard(session_->mutex);
    session_->used = std::chrono::steady_clock::now();
    session_->pace.seconds += done_->prompt_seconds + done_->seconds;
    ++session_->pace.answers;
    if (chatting_ && done_->reason != infer::StopReason::cancelled) {
      data::ChatMessage asked{"user", prompt_}, answered{"assistant", done_->text};
      session_->messages.reserve(session_->messages.size() + 2);  // both or none
      session_->messages.push_back(std::move(asked));
      session_->messages.push_back(std::move(answered));
    }
    if (done_->reason == infer::StopReason::cancelled && done_->tokens.empty() && is_closed())
      throw Failure(Code::runtime_error, "the context was closed before the answer began");
    if (done_->reason == infer::StopReason::context_full) return Code::context_full;
    if (done_->reason == infer::StopReason::time && done_->tokens.empty())
      throw Failure(Code::timeout, "the time was up before the answer began");
    return Code::success;
  }

  /// The turn ends, whatever comes of it.
  Code finish_stream() {
    Turn const turn = std::move(turn_);
    streaming_ = false;
    return finish();
  }

  infer::Completion const& need() const {
    if (!done_) throw Failure(Code::runtime_error, "nothing was computed yet");
    return *done_;
  }
  template <class T>
  static std::string bytes_of(std::vector<T> const& values) {
    return std::string(reinterpret_cast<char const*>(values.data()), values.size() * sizeof(T));
  }
  std::string status() const {
    nlohmann::json json;
    io::JsonEnd const end(json);
    std::lock_guard const guard(mutex_);
    infer::ServiceStatus const service = graph_->model->service().status();
    json["state"] = streaming_        ? "streaming"
                    : done_           ? "done"
                    : !error_.empty() ? "failed"
                    : ids_.empty()    ? "empty"
                                      : "ready";
    json["error"] = error_;
    json["model"] = graph_->settings.name;
    json["context_tokens"] = graph_->model->settings().n_ctx;
    json["device"] = graph_->device;
    json["queue"] = {{"waiting", service.waiting}, {"running", service.running}};
    json["notes"] = notes_;
    for (std::string const& note : restored_) json["notes"].push_back(note);
    if (done_) {
      describe(*done_, graph_->model->tokenizer(), used_.n_probs, json);
      auto const taken = done_->prompt_tokens + static_cast<std::int64_t>(done_->tokens.size());
      json["used_tokens"] = std::min(taken, graph_->model->settings().n_ctx);
      json["seed"] = seed_;
    }
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::mutex working_;        // held by the call at work
  mutable std::mutex mutex_;  // of graph_, session_, generation_ and error_ where others look
  std::shared_ptr<Graph const> graph_;
  std::shared_ptr<Session> const own_;
  std::shared_ptr<Session> session_;
  std::size_t dropped_ = 0;  // turns of the session that the prompt had no room for
  std::shared_ptr<infer::Generation> generation_;
  std::string error_, told_;  // told_: the status where its model is gone
  Document options_;
  std::string prompt_;
  std::vector<std::int32_t> ids_;
  bool by_tokens_ = false, chatting_ = false, streaming_ = false, closed_ = false;
  Settings used_;
  std::uint64_t seed_ = 0;
  std::vector<std::string> notes_, restored_;  // of an answer; of the last control
  std::optional<infer::Completion> done_;
  std::optional<Code> stream_ended_;
  std::shared_ptr<Pieces> pieces_;
  std::string piece_;
  Turn turn_;
};

}  // namespace tutti::wasi_nn
