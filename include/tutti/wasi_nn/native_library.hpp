// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The second door of wasm-micro-runtime, `iwasm --native-lib`: all functions of `wasi_ephemeral_nn`, those that its
/// own table lacks included, on the memory of the calling module instance. Each instance of a module has a backend of
/// its own, which ends with it. Source: wasm-micro-runtime, wasm_export.h and doc/export_native_api.md, 2.4.

#include <tutti/wasi_nn/wamr.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wasi_nn::native_library {

/// A row of the table that get_native_lib gives.
struct Symbol {
  char const* name;
  void* function;
  char const* signature;
  void* attachment;
};

/// Functions of the runtime.
struct Runtime {
  void* (*instance_of)(void* environment) = nullptr;                              ///< wasm_runtime_get_module_inst
  bool (*holds)(void* instance, std::uint64_t at, std::uint64_t size) = nullptr;  ///< ..._validate_app_addr
  void* (*native)(void* instance, std::uint64_t at) = nullptr;                    ///< ..._addr_app_to_native
  void (*clear_exception)(void* instance) = nullptr;                              ///< ..._clear_exception
  void* (*get_context)(void* instance, void* key) = nullptr;                      ///< ..._get_context
  void* (*create_key)(void (*end)(void* instance, void* context)) = nullptr;      ///< ..._create_context_key
  void (*set_context)(void* instance, void* key, void* context) = nullptr;        ///< ..._set_context
  void (*destroy_key)(void* key) = nullptr;                                       ///< ..._destroy_context_key
};

/// Backends by module instance.
class Door {
 public:
  static Door& get() {
    static Door door;
    return door;
  }

  /// Errors: Failure, unsupported_operation, when the runtime lacks what is needed.
  void open(Runtime runtime) {
    if (runtime.instance_of == nullptr || runtime.holds == nullptr || runtime.native == nullptr ||
        runtime.clear_exception == nullptr || runtime.get_context == nullptr || runtime.create_key == nullptr ||
        runtime.set_context == nullptr || runtime.destroy_key == nullptr)
      throw Failure(Code::unsupported_operation,
                    "this iwasm lacks functions that reach a guest's memory and instance. Build 2.4 or later with "
                    "WAMR_BUILD_WASI_NN=1, or load the library as a backend");
    std::lock_guard const guard(mutex_);
    void* const key = runtime.create_key([](void*, void* context) { Door::get().drop(context); });
    if (key == nullptr)
      throw Failure(Code::unsupported_operation, "this iwasm has no place left for a library's context");
    runtime_ = runtime, key_ = key;
  }
  void close() {
    std::map<void*, std::shared_ptr<Instance>> ending;
    std::lock_guard const guard(mutex_);
    ending.swap(backends_);
    if (key_ != nullptr) runtime_.destroy_key(key_);
    key_ = nullptr;
  }
  Runtime const& runtime() const noexcept { return runtime_; }

  /// Of the module instance, and of the threads that the runtime makes of it, which get its contexts.
  std::shared_ptr<Instance> backend(void* module) {
    std::lock_guard const guard(mutex_);
    if (key_ == nullptr) throw Failure(Code::runtime_error, "the library was not initialised by the runtime");
    auto const found = backends_.find(runtime_.get_context(module, key_));
    if (found != backends_.end()) return found->second;
    auto instance = std::make_shared<Instance>(Registry::from_environment(), Flavour{}, "");
    backends_.emplace(instance.get(), instance);
    runtime_.set_context(module, key_, instance.get());
    return instance;
  }

 private:
  void drop(void* context) {
    std::shared_ptr<Instance> ending;
    std::lock_guard const guard(mutex_);
    auto const found = backends_.find(context);
    if (found == backends_.end()) return;
    ending = std::move(found->second);
    backends_.erase(found);
  }

  std::mutex mutex_;
  Runtime runtime_;
  void* key_ = nullptr;
  std::map<void*, std::shared_ptr<Instance>> backends_;
};

/// Memory of the guest that calls.
class Guest {
 public:
  explicit Guest(void* environment) : module_(Door::get().runtime().instance_of(environment)) {}

  void* module() const noexcept { return module_; }
  /// Errors: Failure, invalid_argument, for what the guest's memory does not hold. The guest sees the code, no trap.
  std::byte* at(std::uint32_t address, std::uint64_t size) const {
    Runtime const& runtime = Door::get().runtime();
    if (address == 0) throw Failure(Code::invalid_argument, "a pointer of the guest is null");
    if (!runtime.holds(module_, address, size)) {
      runtime.clear_exception(module_);
      throw Failure(Code::invalid_argument,
                    concat("address ", address, " with ", size, " bytes is outside of the guest's memory"));
    }
    return static_cast<std::byte*>(runtime.native(module_, address));
  }
  std::uint32_t word(std::uint32_t address, std::uint32_t index = 0) const {
    std::uint32_t value = 0;
    std::memcpy(&value, at(address, 4 * (std::uint64_t{index} + 1)) + 4 * std::size_t{index}, 4);
    return value;
  }
  void put(std::uint32_t address, std::uint32_t value) const { std::memcpy(at(address, 4), &value, 4); }
  std::span<std::byte const> bytes(std::uint32_t address, std::uint32_t size) const {
    if (size == 0) return {};
    return {at(address, size), size};
  }
  std::string text(std::uint32_t address, std::uint32_t size, std::size_t most) const {
    auto const view = bytes(address, size);
    if (size > most) throw Failure(Code::too_large, concat("a text has ", size, " bytes, at most ", most, " may be"));
    return std::string(reinterpret_cast<char const*>(view.data()), view.size());
  }

 private:
  void* module_;
};

template <class F>
std::int32_t call(void* environment, char const* function, F&& f) noexcept {
  std::optional<Guest> guest;
  Log log;
  return guarded<Instance>(
      witx_number, function,
      [&] {
        guest.emplace(environment);
        return Door::get().backend(guest->module());
      },
      [&](Instance& instance) { return f(*guest, instance); }, &log);
}

using Word = std::uint32_t;

inline std::int32_t load(void* env, Word parts, Word count, Word encoding, Word target, Word graph) noexcept {
  return call(env, "load", [&](Guest const& guest, Instance& instance) {
    guest.at(graph, 4);
    if (count > 2) throw Failure(Code::invalid_argument, concat("a model has one part or two, not ", count));
    std::vector<std::span<std::byte const>> spans;
    for (Word i = 0; i < count; ++i)
      spans.push_back(guest.bytes(guest.word(parts, 2 * i), guest.word(parts, 2 * i + 1)));
    guest.put(graph, instance.load(spans, encoding, target));
    return Code::success;
  });
}
inline std::int32_t load_by_name_with_config(void* env, Word name, Word name_size, Word config, Word config_size,
                                             Word graph) noexcept {
  return call(env, "load_by_name_with_config", [&](Guest const& guest, Instance& instance) {
    guest.at(graph, 4);
    guest.put(graph, instance.load_by_name(guest.text(name, name_size, 4096),
                                           guest.text(config, config_size, Document::most_bytes)));
    return Code::success;
  });
}
inline std::int32_t load_by_name(void* env, Word name, Word size, Word graph) noexcept {
  return load_by_name_with_config(env, name, size, 0, 0, graph);
}
inline std::int32_t init_execution_context(void* env, Word graph, Word execution) noexcept {
  return call(env, "init_execution_context", [&](Guest const& guest, Instance& instance) {
    guest.at(execution, 4);
    guest.put(execution, instance.open(graph));
    return Code::success;
  });
}
/// The guest's tensor: 0 dimensions, 4 their number, 8 type, 12 data, 16 bytes.
inline std::int32_t set_input(void* env, Word execution, Word index, Word tensor) noexcept {
  return call(env, "set_input", [&](Guest const& guest, Instance& instance) {
    instance.set_input(execution, index, [&] {
      Word const dimensions = guest.word(tensor, 0), count = guest.word(tensor, 1), type = guest.word(tensor, 2) & 0xff;
      wamr::Dimensions shape{nullptr, count};
      if (count > wamr::most_dimensions || (count > 0 && guest.at(dimensions, 4 * std::uint64_t{count}) == nullptr))
        throw Failure(Code::invalid_argument, concat("a tensor has ", count, " dimensions, at most 4 may be"));
      auto const data = guest.bytes(guest.word(tensor, 3), guest.word(tensor, 4));
      // Read, not written: the interface of C has no const.
      auto* const memory = const_cast<std::uint8_t*>(reinterpret_cast<std::uint8_t const*>(data.data()));
      return wamr::copied({&shape, static_cast<std::uint8_t>(type), {memory, static_cast<Word>(data.size())}});
    });
    return Code::success;
  });
}
inline std::int32_t compute(void* env, Word execution) noexcept {
  return call(env, "compute", [&](Guest const&, Instance& instance) { return instance.compute(execution); });
}
inline std::int32_t compute_single(void* env, Word execution) noexcept {
  return call(env, "compute_single",
              [&](Guest const&, Instance& instance) { return instance.compute_single(execution); });
}
template <class Output>
std::int32_t output(void* env, char const* function, Word buffer, Word room, Word written, Output&& bytes_of) noexcept {
  return call(env, function, [&](Guest const& guest, Instance& instance) {
    guest.at(written, 4);
    if (room > 0) guest.at(buffer, room);
    std::string const bytes = bytes_of(instance);
    guest.put(written, static_cast<Word>(bytes.size()));
    if (room < bytes.size()) return Code::too_large;
    // The answer may have taken long and the guest's memory may have moved: its place is looked up now.
    if (!bytes.empty()) std::memcpy(guest.at(buffer, room), bytes.data(), bytes.size());
    return Code::success;
  });
}
inline std::int32_t get_output(void* env, Word execution, Word index, Word buffer, Word room, Word written) noexcept {
  return output(env, "get_output", buffer, room, written, [&](Instance& i) { return i.output(execution, index); });
}
inline std::int32_t get_output_single(void* env, Word execution, Word index, Word buffer, Word room,
                                      Word written) noexcept {
  return output(env, "get_output_single", buffer, room, written,
                [&](Instance& i) { return i.output_single(execution, index); });
}
inline std::int32_t fini_single(void* env, Word execution) noexcept {
  return call(env, "fini_single", [&](Guest const&, Instance& instance) {
    instance.fini_single(execution);
    return Code::success;
  });
}
inline std::int32_t unload(void* env, Word graph) noexcept {
  return call(env, "unload", [&](Guest const&, Instance& instance) {
    instance.unload(graph);
    return Code::success;
  });
}
inline std::int32_t finalize_execution_context(void* env, Word execution) noexcept {
  return call(env, "finalize_execution_context", [&](Guest const&, Instance& instance) {
    instance.close(execution);
    return Code::success;
  });
}

/// The table. Pointers are taken as numbers (i), so that this library checks them and a wrong one is a code, no trap.
inline std::span<Symbol> symbols() {
  static std::array<Symbol, 12> table = {{
      {"load", reinterpret_cast<void*>(load), "(iiiii)i", nullptr},
      {"load_by_name", reinterpret_cast<void*>(load_by_name), "(iii)i", nullptr},
      {"load_by_name_with_config", reinterpret_cast<void*>(load_by_name_with_config), "(iiiii)i", nullptr},
      {"init_execution_context", reinterpret_cast<void*>(init_execution_context), "(ii)i", nullptr},
      {"set_input", reinterpret_cast<void*>(set_input), "(iii)i", nullptr},
      {"compute", reinterpret_cast<void*>(compute), "(i)i", nullptr},
      {"get_output", reinterpret_cast<void*>(get_output), "(iiiii)i", nullptr},
      {"compute_single", reinterpret_cast<void*>(compute_single), "(i)i", nullptr},
      {"get_output_single", reinterpret_cast<void*>(get_output_single), "(iiiii)i", nullptr},
      {"fini_single", reinterpret_cast<void*>(fini_single), "(i)i", nullptr},
      {"unload", reinterpret_cast<void*>(unload), "(i)i", nullptr},
      {"finalize_execution_context", reinterpret_cast<void*>(finalize_execution_context), "(i)i", nullptr},
  }};
  return table;
}

/// Zero, or -1 with a line of the log, as iwasm expects.
inline int open(Runtime const& runtime) noexcept {
  try {
    Door::get().open(runtime);
    return 0;
  } catch (...) {
    code_of_failure([](std::string const& text) { Log()(LogLevel::error, "init_native_lib: " + text); });
    return -1;
  }
}
/// How many symbols there are.
inline std::uint32_t table(char** module, void** rows) noexcept {
  static char name[] = "wasi_ephemeral_nn";
  if (module == nullptr || rows == nullptr) return 0;
  *module = name;
  *rows = symbols().data();
  return static_cast<std::uint32_t>(symbols().size());
}

}  // namespace tutti::wasi_nn::native_library
