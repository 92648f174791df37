// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model that is loaded once in a process and serves all who ask for it with the same settings.

#include <tutti/data/chat_template.hpp>
#include <tutti/infer/compute_pool.hpp>
#include <tutti/infer/cuda/find_device.hpp>
#include <tutti/infer/decoder_fit.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/service.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/wasi_nn/failure.hpp>
#include <tutti/wasi_nn/settings.hpp>

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn {

using infer::MemoryBudget, infer::MemoryNeed;

/// What a guest can do where memory is short.
inline constexpr char memory_advice[] =
    "Lower n_ctx, n_batch or max_concurrent, or set cache_type_k and cache_type_v to f16 or q8_0";

/// What models have together that differ in their settings alone.
struct ModelFile {
  infer::LoadedModel loaded;
  std::weak_ptr<graph::Memory> tiles;  ///< DecoderOptions::shared_tiles
};

/// Ready to answer. Thread-safe.
class Model {
 public:
  /// Beside whatever is there already; of one file one at a time. `on_gpu`: n_gpu_layers of them on the GPU, as
  /// choose_device has found.
  /// Errors: Failure, Error (io, format, out_of_memory; of the GPU).
  Model(std::shared_ptr<ModelFile> file, Settings const& settings, bool on_gpu, std::shared_ptr<Log> const& log)
      : log_(log), file_(std::move(file)), model_(file_->loaded.model), settings_(settings) {
    nn::change_rotation(
        model_,
        {.base = settings_.rope_freq_base,
         .scale = settings_.rope_freq_scale,
         .kind = settings_.rope_scaling_type == RopeScaling::unspecified ? "" : settings_.rope_scaling_type.text(),
         .extrapolation = settings_.yarn_ext_factor,
         .attention = settings_.yarn_attn_factor,
         .fast = settings_.yarn_beta_fast,
         .slow = settings_.yarn_beta_slow,
         .original_tokens = settings_.yarn_orig_ctx});
    if (on_gpu) find_gpu();
    else if (settings_.n_gpu_layers > 0) note("n_gpu_layers: no GPU is used, all layers run on the processors");
    pool_ = infer::ComputePool::of_process(static_cast<int>(settings_.threads));
    infer::FittedService fitted = fit();
    memory_ = std::move(fitted.memory);
    if (double const most = static_cast<double>(settings_.max_memory_mb << 20) * settings_.memory_pressure_threshold;
        settings_.max_memory_mb > 0 && static_cast<double>(MemoryBudget::in_use()) > most)
      (*log_)(LogLevel::warn,
              concat("models and caches take ", MemoryBudget::in_use() >> 20, " of ", settings_.max_memory_mb, " MB"));
    try {
      service_.emplace(*pool_, model_, file_->loaded.tokenizer, fitted.options);
    } catch (Error const& error) {
      if (!gpu_ || settings_.device != Device::automatic || error.kind() != ErrorKind::invalid_argument) throw;
      note("n_gpu_layers: all layers run on the processors: " + error.message());  // its kernels do not take them
      gpu_.reset();
      fitted.options.decoder.device = nullptr;
      fitted.options.decoder.tiles = false;  // for which no memory was set aside
      service_.emplace(*pool_, model_, file_->loaded.tokenizer, fitted.options);
    }
    if (settings_.use_mlock) lock_weights(service_->decoder().computed());
    pieces_ = infer::token_pieces(file_->loaded.tokenizer);
    (*log_)(LogLevel::info, concat("model '", settings_.name, "'",
                                   settings_.description.empty() ? "" : " (" + settings_.description + ")", ": ",
                                   model_.layers(), " layers, ", settings_.max_concurrent, " answers at once of ",
                                   settings_.n_ctx, " tokens each, ", pool_->context().threads(), " threads"));
  }
  Model(Model const&) = delete;
  Model& operator=(Model const&) = delete;

  /// As they were made to fit.
  Settings const& settings() const noexcept { return settings_; }
  data::Tokenizer const& tokenizer() const noexcept { return file_->loaded.tokenizer; }
  infer::Service& service() noexcept { return *service_; }
  std::vector<std::string> const& pieces() const noexcept { return pieces_; }
  std::string const& chat_template() const noexcept { return file_->loaded.chat_template; }
  std::vector<std::string> const& notes() const noexcept { return notes_; }
  /// "22 of 22 layers and the head on CUDA device 0", or nothing.
  std::string gpu() const {
    infer::Decoder const& decoder = service_->decoder();
    return decoder.device_layers() > 0 ? decoder.describe_device() : std::string();
  }

  /// A line of the log, at level debug.
  void tell(std::string const& text) const {
    if (log_->writes(LogLevel::debug)) (*log_)(LogLevel::debug, "model '" + settings_.name + "': " + text);
  }
  /// The token that is meant by a number or a text; nothing where the vocabulary has none.
  std::optional<std::int32_t> token(std::string const& text) const {
    std::int64_t number = 0;
    if (setting::parse(text, number)) {
      if (number < 0 || number >= file_->loaded.tokenizer.vocabulary()) return std::nullopt;
      return static_cast<std::int32_t>(number);
    }
    if (auto const special = file_->loaded.tokenizer.special(text)) return special;
    auto const found = std::find(pieces_.begin(), pieces_.end(), text);
    if (text.empty() || found == pieces_.end()) return std::nullopt;
    return static_cast<std::int32_t>(found - pieces_.begin());
  }

 private:
  void note(std::string text) {
    (*log_)(LogLevel::info, "model '" + settings_.name + "': " + text);
    notes_.push_back(std::move(text));
  }
  /// Sizes that are not said are chosen.
  infer::FittedService fit() {
    Settings& s = settings_;
    std::int64_t const most = model_.max_tokens();
    if (s.n_ctx > most && model_.learned_positions())
      throw Failure(Code::invalid_argument,
                    concat("n_ctx is ", s.n_ctx, ", and the model has learned ", most, " positions"));
    if (s.numa != Numa::disabled) note("numa: the system's own placement of memory is kept");
    infer::FitOptions how;
    how.most_bytes = s.max_memory_mb << 20;
    how.threads = pool_->context().threads();
    how.beside = {.weights = model_.bytes(), .mapped = s.use_mmap};
    how.usual_batch = s.batch_tokens;
    how.advice = memory_advice;
    infer::FittedService fitted = infer::fit_service(model_, service_options(), how);
    for (std::string const& text : fitted.notes) note(text);
    s.n_ctx = fitted.options.decoder.capacity;
    if (s.n_batch == 0) s.n_batch = fitted.options.prompt_chunk;
    return fitted;
  }
  void find_gpu() {
    std::string missing;
    gpu_ = infer::find_layer_device(missing);
    if (!gpu_) throw Failure(Code::unsupported_operation, "a GPU was found and is gone: " + missing);
  }
  void lock_weights(nn::StoredModel const& model) {
    for (nn::StoredTensor const& tensor : model.tensors)
      if (::mlock(tensor.data, static_cast<std::size_t>(tensor.bytes())) != 0) {
        std::string const why = std::strerror(errno);
        (*log_)(LogLevel::warn, "model '" + settings_.name + "': use_mlock: the system refuses it: " + why);
        notes_.push_back("use_mlock: the system refuses it: " + why);
        return;
      }
  }
  infer::ServiceOptions service_options() const {
    Settings const& s = settings_;
    infer::ServiceOptions o;
    o.decoder.slots = s.max_concurrent;
    o.decoder.capacity = s.n_ctx;
    o.decoder.cache = infer::block_type(s.cache_type_k);
    o.decoder.shared_tiles = &file_->tiles;
    o.decoder.device = gpu_.get();
    o.decoder.device_share.count = s.n_gpu_layers;
    o.prompt_chunk = s.n_batch == 0 ? 0 : std::min(s.n_batch, s.batch_tokens);
    o.running = s.batch_processing ? 0 : 1;
    o.queue.most = static_cast<std::size_t>(s.queue_reject_threshold);
    o.queue.warn = static_cast<std::size_t>(s.queue_warning_threshold);
    o.queue.priorities = s.priority_scheduling_enabled;
    o.queue.fair = s.fair_scheduling_enabled;
    o.queue.cleanup = s.auto_queue_cleanup;
    o.log = log_, o.name = s.name;
    o.queue.on_warning = [log = log_, name = settings_.name](std::size_t waiting) {
      (*log)(LogLevel::warn, concat("model '", name, "': ", waiting, " requests wait"));
    };
    o.cache = {.order = s.cache_strategy,
               .tokens = s.max_cache_tokens,
               .deletion = s.cache_deletion_strategy,
               .partial = s.enable_partial_cache_deletion,
               .retention = std::chrono::milliseconds(s.retention_ms),
               .similarity = s.cache_similarity,
               .chunk = s.cache_reuse};
    return o;
  }

  std::shared_ptr<Log> log_;
  std::shared_ptr<ModelFile> file_;
  nn::StoredModel model_;  // its weights, with the rotation that the settings ask for
  Settings settings_;
  std::vector<std::string> notes_;
  MemoryBudget::Part memory_;
  std::unique_ptr<infer::LayerDevice> gpu_;
  std::shared_ptr<infer::ComputePool> pool_;
  std::vector<std::string> pieces_;
  std::optional<infer::Service> service_;  // last: its thread uses all the others
};

/// Models of this process by file and settings; weights are shared by all of one file. Thread-safe.
class ModelCache {
 public:
  /// Errors: those of Model.
  static std::shared_ptr<Model> get(std::string const& path, Settings const& settings, bool on_gpu,
                                    std::shared_ptr<Log> const& log) {
    struct stat facts {};
    bool const known = ::stat(path.c_str(), &facts) == 0;
    std::string file = concat(path, settings.use_mmap ? "|mapped" : "|read");
    if (known)
      file += concat("|", facts.st_size, "|", facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec, "|", facts.st_ino);
    std::string key = file + (on_gpu ? "|gpu" : "|cpu");
    Settings copy = settings;
    for_each_setting(copy, [&]<class T>(Row const& row, T const& value, auto const&, char const*) {
      std::string_view const one(row.name);
      bool const of_instance = one.starts_with("log_") || one == "max_sessions" || one == "idle_timeout_ms" ||
                               one == "auto_cleanup" || one == "share_prefix" ||
                               one == "device";  // whoever gets the same one shares the model
      if (row.last > Level::model || of_instance) return;
      if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T>) key += concat("|", value);
      else if constexpr (requires { value.text(); }) key += "|" + value.text();
    });
    std::lock_guard const guard(mutex());  // two who ask at once do not load twice
    std::weak_ptr<Model>& place = models()[key];
    if (auto model = place.lock()) return model;
    std::shared_ptr<ModelFile> loaded = files()[file].lock();
    if (!loaded) {
      loaded = std::make_shared<ModelFile>(
          infer::load_model_file(path, settings.use_mmap ? io::Loading::mapped : io::Loading::read));
      files()[file] = loaded;
    }
    auto model = std::make_shared<Model>(std::move(loaded), settings, on_gpu, log);
    if (!on_gpu || !model->gpu().empty()) place = model;  // else the GPU may have room when the next one asks
    std::erase_if(models(), [](auto const& one) { return one.second.expired(); });
    std::erase_if(files(), [](auto const& one) { return one.second.expired(); });
    return model;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<std::string, std::weak_ptr<ModelFile>>& files() {
    static std::map<std::string, std::weak_ptr<ModelFile>> all;
    return all;
  }
  static std::map<std::string, std::weak_ptr<Model>>& models() {
    static std::map<std::string, std::weak_ptr<Model>> all;
    return all;
  }
};

}  // namespace tutti::wasi_nn
