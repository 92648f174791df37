// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Objects behind the pointers that hosts hold, and the boundary that no exception crosses.

#include <tutti/config.hpp>
#include <tutti/infer/log.hpp>
#include <tutti/wasi_nn/failure.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace tutti::wasi_nn {

using infer::Log, infer::LogLevel;

/// Those of type T in this process. A pointer that is none of them is refused. Thread-safe.
template <class T>
class Live {
 public:
  static void* add(std::shared_ptr<T> object) {
    void* const key = object.get();
    std::lock_guard const guard(mutex());
    all()[key] = std::move(object);
    return key;
  }
  /// Errors: Failure, invalid_argument.
  static std::shared_ptr<T> find(void* key) {
    std::lock_guard const guard(mutex());
    auto const found = all().find(key);
    if (found == all().end())
      throw Failure(Code::invalid_argument, "the backend's context is none that init_backend gave");
    return found->second;
  }
  /// Ends it. Blocking until no call is in it any more. Errors: those of find.
  static void remove(void* key) {
    std::shared_ptr<T> const object = find(key);
    {
      std::lock_guard const guard(mutex());
      if (all().erase(key) == 0) return;  // another call ends it
    }
    object->stop();
    while (object.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<void*, std::shared_ptr<T>>& all() {
#if TUTTI_WITH_CUDA  // whose runtime may have ended before what a host has left would
    static auto& objects = *new std::map<void*, std::shared_ptr<T>>;
#else
    static std::map<void*, std::shared_ptr<T>> objects;
#endif
    return objects;
  }
};

/// Errors: Failure, invalid_argument.
template <class T>
T& not_null(T* pointer, char const* what) {
  if (pointer == nullptr) throw Failure(Code::invalid_argument, std::string(what) + " is a null pointer");
  return *pointer;
}

/// The number of what f(*find()) returns; what either throws becomes a number, and a line of the object's log. Where
/// `find` gave none, `otherwise` gets the line.
template <class T, class Find, class F>
int guarded(int (*number)(Code), char const* function, Find&& find, F&& f, Log* otherwise = nullptr) noexcept {
  std::shared_ptr<T> object;
  try {
    object = find();
    return number(f(*object));
  } catch (...) {
    return number(code_of_failure([&](std::string const& text) {
      if (Log* const log = object ? &object->log() : otherwise)
        (*log)(LogLevel::error, std::string(function) + ": " + text);
    }));
  }
}
/// The same for a function that makes an object, which is alive from then on.
template <class T, class Make>
int begin_object(int (*number)(Code), void** context, Make&& make) noexcept {
  try {
    not_null(context, "the backend's context") = nullptr;
    *context = Live<T>::add(make());
    return 0;
  } catch (...) {
    return number(code_of_failure([](std::string const& text) { Log()(LogLevel::error, "init_backend: " + text); }));
  }
}
/// The same for the one that ends it.
template <class T>
int end_object(int (*number)(Code), void* context) noexcept {
  try {
    Live<T>::remove(context);
    return 0;
  } catch (...) {
    return number(code_of_failure([](std::string const&) {}));
  }
}

}  // namespace tutti::wasi_nn
