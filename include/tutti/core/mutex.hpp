// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A mutex and its guard: as std::mutex, without the clocks and error codes that <mutex> brings to every includer.

#include <pthread.h>

namespace tutti {

class Mutex {
 public:
  Mutex() = default;
  Mutex(Mutex const&) = delete;
  Mutex& operator=(Mutex const&) = delete;
  ~Mutex() { ::pthread_mutex_destroy(&mutex_); }
  void lock() noexcept { ::pthread_mutex_lock(&mutex_); }
  void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a mutex while it lives.
class Guard {
 public:
  explicit Guard(Mutex& mutex) noexcept : mutex_(mutex) { mutex_.lock(); }
  Guard(Guard const&) = delete;
  Guard& operator=(Guard const&) = delete;
  ~Guard() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

}  // namespace tutti
