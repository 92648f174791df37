// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Objects behind the pointers that hosts hold.

#include <tutti/wasi_nn/failure.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::wasi_nn {

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
    static std::map<void*, std::shared_ptr<T>> objects;
    return objects;
  }
};

}  // namespace tutti::wasi_nn
