// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The one way to wait: spin briefly, then yield, then sleep.

#include <tutti/config.hpp>
#include <tutti/exec/thread.hpp>

#include <cstdint>
#include <ctime>
#include <sched.h>

namespace tutti::exec {

TUTTI_ALWAYS_INLINE void relax() noexcept {
#if TUTTI_HAS_X86
  __builtin_ia32_pause();
#endif
}

/// Monotonic time in nanoseconds.
inline std::int64_t now_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// How long a wait spins and yields before it sleeps. Spinning only helps while whoever is awaited runs on another
/// processor: with more threads than processors `spins` should be 0.
struct WaitPolicy {
  int spins = 2000;        ///< pause instructions, about 40 ns each on current x86
  int yields = 200;        ///< calls of sched_yield after that
  std::int64_t sleep_ns = 50'000;  ///< then sleeps of this length between two looks
};

/// One wait's progress through its policy. Call `step` between two looks at the condition.
class Backoff {
 public:
  explicit Backoff(WaitPolicy policy) noexcept : policy_(policy) {}
  /// Where the wait has got to, so that a caller with a futex can sleep on that instead.
  bool should_sleep() const noexcept { return count_ >= policy_.spins + policy_.yields; }
  std::int64_t sleep_ns() const noexcept { return policy_.sleep_ns; }
  void step() noexcept {
    if (count_ < policy_.spins) {
      relax();
      ++count_;
    } else if (count_ < policy_.spins + policy_.yields) {
      ::sched_yield();
      ++count_;
    } else {
      timespec const time{0, static_cast<long>(policy_.sleep_ns)};
      ::nanosleep(&time, nullptr);
    }
  }

 private:
  WaitPolicy policy_;
  int count_ = 0;
};

}  // namespace tutti::exec
