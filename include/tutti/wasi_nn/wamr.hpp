// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The interface of wasm-micro-runtime 2.4 and later to a backend for WASI-NN: its structs, and the body of each
/// function that the library exports. Blocking: `compute` until the answer has ended.
/// Source: wasm-micro-runtime, core/iwasm/libraries/wasi-nn, 2.4.0.

#include <tutti/core/concat.hpp>
#include <tutti/wasi_nn/instance.hpp>
#include <tutti/wasi_nn/live.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::wasi_nn::wamr {

// As a host on a 64-bit machine lays them out.
struct Bytes {
  std::uint8_t* data;
  std::uint32_t size;
};
struct Parts {
  Bytes* data;
  std::uint32_t size;
};
struct Dimensions {
  std::uint32_t* data;
  std::uint32_t size;
};
struct Tensor {
  Dimensions* dimensions;
  std::uint8_t type;  ///< 0 f16, 1 f32, 2 f64, 3 u8, 4 i32, 5 i64
  Bytes data;
};
static_assert(sizeof(Bytes) == 16 && offsetof(Bytes, size) == 8);
static_assert(sizeof(Tensor) == 32 && offsetof(Tensor, type) == 8 && offsetof(Tensor, data) == 16);

inline constexpr std::uint32_t most_dimensions = 4;
inline constexpr std::uint32_t most_input = 16 << 20;  ///< bytes of a prompt, of options and of tokens

/// Runs f(instance) for the pointer that init_backend gave; whatever it throws becomes a number and a line of the log.
template <class F>
int call(void* context, char const* function, F&& f) noexcept {
  return guarded<Instance>(
      witx_number, function, [context] { return Live<Instance>::find(context); }, f);
}
inline std::string_view text_of(char const* text, std::uint32_t size, char const* what) {
  if (text == nullptr && size > 0) throw Failure(Code::invalid_argument, std::string(what) + " is a null pointer");
  return text == nullptr ? std::string_view() : std::string_view(text, size);
}

/// An older host would be misread: its structs and numbers are others. Errors: Failure, unsupported_operation.
/// `version` is its wasm_runtime_get_version; null: the host is not wasm-micro-runtime.
inline void check_host(void (*version)(std::uint32_t*, std::uint32_t*, std::uint32_t*)) {
  if (version == nullptr) return;
  std::uint32_t major = 0, minor = 0, patch = 0;
  version(&major, &minor, &patch);
  if (major < 2 || (major == 2 && minor < 4))
    throw Failure(Code::unsupported_operation, concat("this host is wasm-micro-runtime ", major, ".", minor, ".", patch,
                                                      ", and the library needs 2.4 or later"));
}

inline int init(void** context, void (*version)(std::uint32_t*, std::uint32_t*, std::uint32_t*)) noexcept {
  return begin_object<Instance>(witx_number, context, [version] {
    check_host(version);
    return std::make_shared<Instance>(Registry::from_environment(), Flavour{}, "");
  });
}
inline int deinit(void* context) noexcept { return end_object<Instance>(witx_number, context); }
inline int load(void* context, Parts const* parts, std::uint32_t encoding, std::uint32_t target,
                std::uint32_t* graph) noexcept {
  return call(context, "load", [&](Instance& instance) {
    Parts const& list = not_null(parts, "the model");
    if (list.size > 2 || (list.size > 0 && list.data == nullptr))
      throw Failure(Code::invalid_argument, concat("a model has one part or two, not ", list.size));
    std::vector<std::span<std::byte const>> spans;
    for (std::uint32_t i = 0; i < list.size; ++i) {
      text_of(reinterpret_cast<char const*>(list.data[i].data), list.data[i].size, "a part of the model");
      spans.emplace_back(reinterpret_cast<std::byte const*>(list.data[i].data), list.data[i].size);
    }
    not_null(graph, "the graph");
    *graph = instance.load(spans, encoding, target);
    return Code::success;
  });
}
inline int load_by_name(void* context, char const* name, std::uint32_t name_size, char const* config,
                        std::uint32_t config_size, std::uint32_t* graph) noexcept {
  return call(context, "load_by_name", [&](Instance& instance) {
    not_null(graph, "the graph");
    *graph = instance.load_by_name(text_of(name, name_size, "the name"), text_of(config, config_size, "the settings"));
    return Code::success;
  });
}
inline int init_execution_context(void* context, std::uint32_t graph, std::uint32_t* execution) noexcept {
  return call(context, "init_execution_context", [&](Instance& instance) {
    not_null(execution, "the execution context");
    *execution = instance.open(graph);
    return Code::success;
  });
}
/// A copy of the tensor's bytes, made before anything looks at them: a guest may change them meanwhile.
inline GuestTensor copied(Tensor const& tensor) {
  if (tensor.dimensions != nullptr && tensor.dimensions->size > most_dimensions)
    throw Failure(Code::invalid_argument,
                  concat("a tensor has ", tensor.dimensions->size, " dimensions, at most 4 may be"));
  if (tensor.type > 5) throw Failure(Code::invalid_argument, concat("element type ", tensor.type + 0u, " is unknown"));
  if (tensor.data.data == nullptr || tensor.data.size == 0)
    throw Failure(Code::invalid_argument, "a tensor has no data");
  if (tensor.data.size > most_input)
    throw Failure(Code::too_large,
                  concat("a tensor has ", tensor.data.size, " bytes, at most ", most_input, " may be"));
  return {std::string(reinterpret_cast<char const*>(tensor.data.data), tensor.data.size), tensor.type == 4};
}
inline int set_input(void* context, std::uint32_t execution, std::uint32_t index, Tensor const* tensor) noexcept {
  return call(context, "set_input", [&](Instance& instance) {
    instance.set_input(execution, index, [&] { return copied(not_null(tensor, "the tensor")); });
    return Code::success;
  });
}
inline int compute(void* context, std::uint32_t execution) noexcept {
  return call(context, "compute", [&](Instance& instance) { return instance.compute(execution); });
}
/// Where there is no room the size goes out, and the output stays for another call.
inline Code give(std::string const& bytes, Bytes* out, std::uint32_t* size) {
  not_null(size, "the size") = static_cast<std::uint32_t>(bytes.size());
  if (out == nullptr || out->size < bytes.size()) return Code::too_large;
  if (!bytes.empty()) std::memcpy(&not_null(out->data, "the buffer"), bytes.data(), bytes.size());
  return Code::success;
}
inline int get_output(void* context, std::uint32_t execution, std::uint32_t index, Bytes* out,
                      std::uint32_t* size) noexcept {
  return call(context, "get_output",
              [&](Instance& instance) { return give(instance.output(execution, index), out, size); });
}
inline int compute_single(void* context, std::uint32_t execution) noexcept {
  return call(context, "compute_single", [&](Instance& instance) { return instance.compute_single(execution); });
}
inline int get_output_single(void* context, std::uint32_t execution, std::uint32_t index, Bytes* out,
                             std::uint32_t* size) noexcept {
  return call(context, "get_output_single",
              [&](Instance& instance) { return give(instance.output_single(execution, index), out, size); });
}
inline int fini_single(void* context, std::uint32_t execution) noexcept {
  return call(context, "fini_single", [&](Instance& instance) {
    instance.fini_single(execution);
    return Code::success;
  });
}
inline int unload(void* context, std::uint32_t graph) noexcept {
  return call(context, "unload", [&](Instance& instance) {
    instance.unload(graph);
    return Code::success;
  });
}
inline int finalize_execution_context(void* context, std::uint32_t execution) noexcept {
  return call(context, "finalize_execution_context", [&](Instance& instance) {
    instance.close(execution);
    return Code::success;
  });
}

}  // namespace tutti::wasi_nn::wamr
