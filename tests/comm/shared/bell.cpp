// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/comm/shared/bell.hpp>
#include "support/catch.hpp"

#include <tutti/comm/shared/bell.hpp>
#include <tutti/exec/wait.hpp>

#include <atomic>
#include <thread>

using tutti::comm::shared::Bell;

namespace {

constexpr std::int64_t long_ns = 20'000'000'000, moment_ns = 1'000'000;

/// Seconds of a sleep of at most `ns`.
double sleep(Bell& bell, std::uint32_t prepared, std::int64_t ns) {
  std::int64_t const begin = tutti::exec::now_ns();
  bell.sleep(prepared, ns);
  return static_cast<double>(tutti::exec::now_ns() - begin) / 1e9;
}

}  // namespace

TEST_CASE("A ring between the look and the sleep is not lost: the sleep ends at once") {
  Bell bell;
  std::uint32_t const waits_for_rank = bell.prepare(3);
  bell.ring_as(3);
  CHECK(sleep(bell, waits_for_rank, long_ns) < 10);
  std::uint32_t const waits_for_message = bell.prepare(Bell::messages);
  bell.ring_for_message();
  CHECK(sleep(bell, waits_for_message, long_ns) < 10);
  std::uint32_t const waits_for_either = bell.prepare(0);
  bell.ring_for_message();
  CHECK(sleep(bell, waits_for_either, long_ns) < 10);
}

TEST_CASE("Who is not awaited wakes nobody, and who is awake is not rung for") {
  Bell bell;
  bell.ring_as(0);
  bell.ring_for_message();
  std::uint32_t const prepared = bell.prepare(3);
  bell.ring_as(2);
  bell.ring_as(4);
  CHECK(sleep(bell, prepared, moment_ns) >= 0.9e-9 * moment_ns);
  CHECK(bell.prepare(Bell::messages) == prepared);
  bell.ring_as(0);
  CHECK(sleep(bell, prepared, moment_ns) >= 0.9e-9 * moment_ns);
  CHECK(bell.prepare(1) == prepared);
  bell.stay_awake();
  bell.ring_as(1);
  CHECK(bell.prepare(1) == prepared);
}

TEST_CASE("Two ranks that wait for each other in turn, asleep, wake each other each time") {
  constexpr int rounds = 20'000;
  Bell bells[2];
  std::atomic<int> done[2] = {0, 0};
  std::atomic<int> late = 0;
  auto const rank = [&](int self) {
    int const other = 1 - self;
    for (int round = 1; round <= rounds; ++round) {
      if (self == 0 || round % 2 == 0) std::this_thread::yield();
      done[self].store(round, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      bells[other].ring_as(self);
      for (;;) {
        std::uint32_t const prepared = bells[self].prepare(other);
        if (done[other].load(std::memory_order_acquire) >= round) break;
        if (sleep(bells[self], prepared, long_ns) > 10) ++late;
      }
      bells[self].stay_awake();
    }
  };
  std::thread first(rank, 0), second(rank, 1);
  first.join();
  second.join();
  CHECK(late == 0);
}
