// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// libwasi_nn_backend.so as a native host drives it.

#include "wasi_nn/support.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tutti::test {

/// {dimensions, 4-byte type, data}, as the interface lays it out.
struct RawTensor {
  void* dimensions = nullptr;
  std::int32_t type = 1;
  std::uint8_t* data = nullptr;
};

struct Backend {
  Library const& library;
  void* context = nullptr;

  explicit Backend(Library const& of, std::string const& config = "") : library(of) {
    int const code = library.call<int(void**, char const*, std::uint32_t)>(
        "init_backend_with_config", &context, config.c_str(), static_cast<std::uint32_t>(config.size()));
    if (code != 0) throw std::runtime_error("init gave " + std::to_string(code));
  }
  ~Backend() { library.call<int(void*)>("deinit_backend", context); }

  int load(std::string const& name, std::string const& config = "") const {
    return library.call<int(void*, char const*, std::uint32_t, char const*, std::uint32_t, std::uint32_t*)>(
        "load_by_name_with_config", context, name.c_str(), static_cast<std::uint32_t>(name.size()), config.c_str(),
        static_cast<std::uint32_t>(config.size()), static_cast<std::uint32_t*>(nullptr));
  }
  int open(char const* session, std::uint32_t* execution) const {
    return library.call<int(void*, char const*, std::uint32_t*)>("init_execution_context_with_session_id", context,
                                                                 session, execution);
  }
  int close(std::uint32_t execution) const {
    return library.call<int(void*, std::uint32_t)>("close_execution_context", context, execution);
  }
  /// Eight arguments; the answer as text of so many bytes, with code 6 the size that is needed. Throws where the answer
  /// lacks its zero byte, and can be called by any thread.
  int run(std::uint32_t execution, std::string prompt, std::string& answer, std::string const& config = "",
          std::uint32_t capacity = 1 << 16) const {
    RawTensor tensor;
    tensor.data = reinterpret_cast<std::uint8_t*>(prompt.data());
    answer.assign(capacity, '\x5a');
    std::uint32_t size = capacity;
    int const code =
        library
            .call<int(void*, std::uint32_t, std::uint32_t, void*, void*, std::uint32_t*, char const*, std::uint32_t)>(
                "run_inference", context, execution, 0u, static_cast<void*>(&tensor), static_cast<void*>(answer.data()),
                &size, config.c_str(), static_cast<std::uint32_t>(config.size()));
    if (code == 0) {
      if (answer[size - 1] != '\0') throw std::runtime_error("the answer has no end");
      answer.resize(size - 1);
    } else if (code == 6) {
      answer = std::to_string(size);
    }
    return code;
  }
  std::string output(std::uint32_t execution, std::uint32_t index) const {
    std::string out(1 << 16, '\0');
    auto size = static_cast<std::uint32_t>(out.size());
    REQUIRE(library.call<int(void*, std::uint32_t, std::uint32_t, void*, std::uint32_t*)>(
                "get_output", context, execution, index, static_cast<void*>(out.data()), &size) == 0);
    out.resize(size - 1);
    return out;
  }
};

}  // namespace tutti::test
