// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Libraries as hosts open them, and a model for them.

#include "infer/tiny_gguf.hpp"
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::test {

/// A shared library, by the variable that holds its path. Closed at the end.
class Library {
 public:
  explicit Library(char const* variable) {
    char const* const path = std::getenv(variable);
    if (path == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
    handle_ = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
  }
  Library(Library const&) = delete;
  Library& operator=(Library const&) = delete;
  ~Library() { ::dlclose(handle_); }

  /// Calls a function by its name. `F` is its type.
  template <class F, class... Arguments>
  auto call(char const* name, Arguments... arguments) const {
    auto* const function = reinterpret_cast<F*>(::dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(std::string("there is no ") + name);
    return function(arguments...);
  }

 private:
  void* handle_ = nullptr;
};

/// A generated model with a token for every byte.
inline std::string write_byte_model(std::string const& path, std::int64_t positions = 512, std::uint32_t seed = 1) {
  write_tiny_gguf(path, tiny_byte_model(positions), seed);
  return path;
}

/// A variable of this process for as long as it lives.
class Variable {
 public:
  Variable(char const* name, std::string const& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(Variable const&) = delete;
  Variable& operator=(Variable const&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  char const* name_;
};

}  // namespace tutti::test
