// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A thread of the system, and words on which threads sleep. WebAssembly has one thread, which never needs to sleep.

#include <tutti/config.hpp>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#if !TUTTI_WASM
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tutti::exec {

/// Who sleeps on a word: threads of this process, or of any that has it in its memory.
enum class FutexScope : unsigned char { process, processes };

#if TUTTI_WASM

class Thread {
 public:
  int start(void* (*)(void*), void*) noexcept { return ENOTSUP; }
  void join() noexcept {}
};
inline void futex_wait(std::atomic<std::uint32_t>&, std::uint32_t, std::int64_t = -1,
                       FutexScope = FutexScope::process) noexcept {}
inline void futex_wake_all(std::atomic<std::uint32_t>&, FutexScope = FutexScope::process) noexcept {}

#else

class Thread {
 public:
  /// 0, or the system's error number where it refuses.
  int start(void* (*main)(void*), void* argument) noexcept {
    return ::pthread_create(&handle_, nullptr, main, argument);
  }
  /// Once, after `start` gave 0.
  void join() noexcept { ::pthread_join(handle_, nullptr); }

 private:
  pthread_t handle_{};
};

/// Sleeps while `word` holds `expected`, at most `timeout_ns` (negative: without bound). May return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t timeout_ns = -1,
                       FutexScope scope = FutexScope::process) noexcept {
  timespec const limit{static_cast<time_t>(timeout_ns / 1'000'000'000), static_cast<long>(timeout_ns % 1'000'000'000)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
            scope == FutexScope::process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT, expected, timeout_ns < 0 ? nullptr : &limit,
            nullptr, 0);
}
inline void futex_wake_all(std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::process) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
            scope == FutexScope::process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

#endif

}  // namespace tutti::exec
