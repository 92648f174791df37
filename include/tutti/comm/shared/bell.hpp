// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a rank sleeps until another one of its node has news for it: where ranks take turns at processors, whoever looks
/// again and again takes them from those that it waits for.

#include <tutti/exec/thread.hpp>

#include <atomic>
#include <cstdint>

namespace tutti::comm::shared {

/// Of one rank, in memory that others see. The rank says whom it waits for (`prepare`), looks once more, and sleeps or
/// stays awake; others make their news visible, pass a full fence, and ring. So either it sees the news or they see
/// that it sleeps.
class alignas(64) Bell {
 public:
  /// For `prepare`: messages alone.
  static constexpr int messages = -1;

  // The owner's.

  /// For `sleep`. A rank that waits for a collective is woken by the rank it waits for, and by messages.
  std::uint32_t prepare(int awaited) noexcept {
    std::uint32_t const rings = rings_.load(std::memory_order_relaxed);
    awaited_.store(awaited + first, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return rings;
  }
  /// For so long at most: not everything rings.
  void sleep(std::uint32_t prepared, std::int64_t ns) noexcept {
    exec::futex_wait(rings_, prepared, ns, exec::FutexScope::processes);
    stay_awake();
  }
  void stay_awake() noexcept { awaited_.store(awake, std::memory_order_relaxed); }

  // Others'.

  void ring_as(int rank) noexcept {
    if (std::int32_t const awaited = awaited_.load(std::memory_order_relaxed); awaited == rank + first) wake(awaited);
  }
  void ring_for_message() noexcept {
    if (std::int32_t const awaited = awaited_.load(std::memory_order_relaxed); awaited != awake) wake(awaited);
  }

 private:
  static constexpr std::int32_t awake = 0, first = 2;

  /// One of those that ring at the same time.
  void wake(std::int32_t awaited) noexcept {
    if (!awaited_.compare_exchange_strong(awaited, awake, std::memory_order_relaxed)) return;
    rings_.fetch_add(1, std::memory_order_relaxed);
    exec::futex_wake_all(rings_, exec::FutexScope::processes);
  }

  std::atomic<std::int32_t> awaited_{awake};
  std::atomic<std::uint32_t> rings_{0};
};

}  // namespace tutti::comm::shared
