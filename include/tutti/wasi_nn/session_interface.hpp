// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The interface with sessions and one call for an answer, which native hosts use: its structs, and the body of each
/// function that the library exports. Texts end with a zero byte, and so do answers.
/// Source: apuslabs/wasi_nn_backend, include/wasi_nn_llama.h, 2025.

#include <tutti/core/concat.hpp>
#include <tutti/wasi_nn/instance.hpp>
#include <tutti/wasi_nn/live.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::wasi_nn::session_interface {

struct Dimensions {
  std::uint32_t* data;
  std::uint32_t size;
};
struct Part {
  std::uint8_t* data;
  std::uint32_t size;
};
struct Parts {
  Part* data;
  std::uint32_t size;
};
/// `data` is a text that ends with a zero byte, whatever dimensions and type say.
struct Tensor {
  Dimensions* dimensions;
  std::int32_t type;  ///< 0 f16, 1 f32, 2 f64, 3 bf16, 4 u8, 5 i32, 6 i64
  std::uint8_t* data;
};
static_assert(sizeof(Tensor) == 24 && offsetof(Tensor, type) == 8 && offsetof(Tensor, data) == 16);

/// The defaults that hosts of this interface know.
inline constexpr std::string_view defaults = R"({
  "n_ctx": 2048, "n_batch": 512, "n_predict": 512, "temp": 0.7, "top_p": 0.95, "repeat_penalty": 1.1,
  "repeat_last_n": -1, "seed": 1234, "min_keep": 1, "context_shifting": true, "n_keep_tokens": 256,
  "default_task_timeout_ms": 30000, "chat_template": "auto", "log_level": "info"})";

inline constexpr std::size_t most_text = 16 << 20;

/// How run_inference is called, which the host says in TUTTI_WASI_NN_RUN_ARGUMENTS.
enum class RunArguments {
  six,    ///< without settings
  seven,  ///< settings that end with a zero byte
  eight,  ///< settings and their size
};
/// Errors: Failure, invalid_argument.
inline RunArguments run_arguments() {
  char const* const text = std::getenv("TUTTI_WASI_NN_RUN_ARGUMENTS");
  std::string_view const value = text == nullptr ? "" : text;
  if (value.empty() || value == "8") return RunArguments::eight;
  if (value == "7") return RunArguments::seven;
  if (value == "6") return RunArguments::six;
  throw Failure(Code::invalid_argument,
                "TUTTI_WASI_NN_RUN_ARGUMENTS is '" + std::string(value.substr(0, 20)) + "'. Use 6, 7 or 8");
}

/// Contexts count from 1 in this interface, as its hosts expect of the first. A number stays another's for ever.
class Host {
 public:
  explicit Host(std::string_view settings)
      : arguments(run_arguments()),
        instance(
            std::make_shared<Instance>(Registry::from_environment(), Flavour{defaults, true, true, true}, settings)) {}

  RunArguments const arguments;
  std::shared_ptr<Instance> const instance;

  void stop() noexcept { instance->stop(); }
  Log& log() const noexcept { return instance->log(); }
  std::uint32_t number(std::uint32_t handle) {
    std::lock_guard const guard(mutex_);
    handles_.push_back(handle);
    return static_cast<std::uint32_t>(handles_.size());
  }
  /// Errors: Failure, invalid_argument.
  std::uint32_t handle(std::uint32_t number) {
    std::lock_guard const guard(mutex_);
    if (number == 0 || number > handles_.size())
      throw Failure(Code::invalid_argument, concat("there is no execution context ", number));
    return handles_[number - 1];
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint32_t> handles_;
};

template <class F>
int call(void* context, char const* function, F&& f) noexcept {
  return guarded<Host>(
      wit_number, function, [context] { return Live<Host>::find(context); }, f);
}
/// At most `size` bytes, up to the first zero byte: a size that is nonsense is not believed further than that.
inline std::string_view text_of(char const* text, std::uint32_t size) {
  if (text == nullptr) return {};
  return std::string_view(text, ::strnlen(text, std::min<std::size_t>(size, Document::most_bytes + 1)));
}
/// A copy of the input's bytes.
inline std::string prompt_of(Tensor const& tensor) {
  auto const* const data = reinterpret_cast<char const*>(&not_null(tensor.data, "the tensor's data"));
  if (tensor.type < 0 || tensor.type > 6)
    throw Failure(Code::invalid_argument, concat("element type ", tensor.type, " is unknown"));
  std::size_t const size = ::strnlen(data, most_text);
  if (size == most_text) throw Failure(Code::too_large, concat("the text has ", most_text, " bytes or more"));
  if (tensor.dimensions != nullptr && tensor.dimensions->size > 4)
    throw Failure(Code::invalid_argument,
                  concat("a tensor has ", tensor.dimensions->size, " dimensions, at most 4 may be"));
  return std::string(data, size);
}
/// The answer with a zero byte. Where there is no room the size goes out, and nothing else.
inline Code give(std::string const& answer, std::uint8_t* out, std::uint32_t* size) {
  std::uint32_t const room = not_null(size, "the size");
  *size = static_cast<std::uint32_t>(answer.size() + 1);
  if (room < answer.size() + 1) return Code::too_large;
  std::memcpy(&not_null(out, "the buffer"), answer.c_str(), answer.size() + 1);
  return Code::success;
}

inline int init(void** context, char const* settings, std::uint32_t size) noexcept {
  return begin_object<Host>(wit_number, context, [=] { return std::make_shared<Host>(text_of(settings, size)); });
}
inline int deinit(void* context) noexcept { return end_object<Host>(wit_number, context); }
inline int load(void* context, Parts const* parts, std::int32_t encoding, std::int32_t target,
                std::uint32_t* graph) noexcept {
  return call(context, "load", [&](Host& host) {
    Parts const& list = not_null(parts, "the model");
    if (list.size == 0 || list.size > 2)
      throw Failure(Code::invalid_argument, concat("a model has one part or two, not ", list.size));
    std::vector<std::span<std::byte const>> spans;
    for (Part const& part : std::span(&not_null(list.data, "the model"), list.size))
      spans.emplace_back(reinterpret_cast<std::byte const*>(&not_null(part.data, "a part of the model")), part.size);
    std::uint32_t const loaded =
        host.instance->load(spans, static_cast<std::uint32_t>(encoding), static_cast<std::uint32_t>(target));
    if (graph != nullptr) *graph = loaded;
    return Code::success;
  });
}
/// A model that is loaded while another answers takes its place for the answers that begin afterwards.
inline int load_by_name(void* context, char const* name, std::uint32_t name_size, char const* settings,
                        std::uint32_t size, std::uint32_t* graph) noexcept {
  return call(context, "load_by_name", [&](Host& host) {
    not_null(name, "the name");
    std::string_view const called = text_of(name, name_size);
    for (std::size_t i = called.size(); i < name_size && i < 4096; ++i)  // one may end it, and more may fill its room
      if (name[i] != 0) throw Failure(Code::invalid_argument, "a model's name has a zero byte in it");
    std::uint32_t const loaded = host.instance->load_by_name(called, text_of(settings, size));
    if (graph != nullptr) *graph = loaded;
    return Code::success;
  });
}
inline int init_execution_context(void* context, char const* session, std::uint32_t* execution) noexcept {
  return call(context, "init_execution_context", [&](Host& host) {
    not_null(execution, "the execution context");
    std::string_view const name =
        session == nullptr ? "default_session" : std::string_view(session, ::strnlen(session, 1024));
    *execution = host.number(host.instance->open_session(name));
    return Code::success;
  });
}
inline int close_execution_context(void* context, std::uint32_t execution) noexcept {
  return call(context, "close_execution_context", [&](Host& host) {
    host.instance->close(host.handle(execution));
    return Code::success;
  });
}
/// Index 0 is the prompt; 1 options of the session; 3 a control.
inline int set_input(void* context, std::uint32_t execution, std::uint32_t index, Tensor const* tensor) noexcept {
  return call(context, "set_input", [&](Host& host) {
    host.instance->set_input(host.handle(execution), index, [&] {
      if (index == 2) throw Failure(Code::unsupported_operation, "tokens have no length in this interface: give text");
      return GuestTensor{prompt_of(not_null(tensor, "the tensor")), false};
    });
    return Code::success;
  });
}
inline int compute(void* context, std::uint32_t execution) noexcept {
  return call(context, "compute", [&](Host& host) { return host.instance->compute(host.handle(execution)); });
}
inline int get_output(void* context, std::uint32_t execution, std::uint32_t index, std::uint8_t* out,
                      std::uint32_t* size) noexcept {
  return call(context, "get_output",
              [&](Host& host) { return give(host.instance->output(host.handle(execution), index), out, size); });
}
/// Blocking. `settings` and `size` are what the host passed; of six or seven arguments the last are not looked at.
inline int run_inference(void* context, std::uint32_t execution, std::uint32_t index, Tensor const* tensor,
                         std::uint8_t* out, std::uint32_t* size, char const* settings,
                         std::uint32_t settings_size) noexcept {
  return call(context, "run_inference", [&](Host& host) {
    if (index != 0) throw Failure(Code::invalid_argument, concat("there is no input ", index, " of run_inference"));
    not_null(out, "the buffer"), not_null(size, "the size");
    std::string const prompt = prompt_of(not_null(tensor, "the tensor"));
    std::string_view document;
    if (host.arguments == RunArguments::eight) document = text_of(settings, settings_size);
    else if (host.arguments == RunArguments::seven && settings != nullptr)
      document = std::string_view(settings, ::strnlen(settings, Document::most_bytes + 1));
    return give(host.instance->run(host.handle(execution), prompt, document), out, size);
  });
}

}  // namespace tutti::wasi_nn::session_interface
