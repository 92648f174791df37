// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/exec/thread.hpp>
#include <tutti/exec/wait.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <pthread.h>

using namespace tutti::exec;

TEST_CASE("a wait reports that it may sleep after its spins and yields, not before") {
  Backoff backoff(WaitPolicy{.spins = 3, .yields = 2, .sleep_ns = 1});
  for (int i = 0; i < 5; ++i) {
    CHECK(!backoff.should_sleep());
    backoff.step();
  }
  CHECK(backoff.should_sleep());
  backoff.step();  // sleeps
  CHECK(backoff.should_sleep());
  CHECK(Backoff(WaitPolicy{.spins = 0, .yields = 0}).should_sleep());
}

TEST_CASE("a step beyond yields sleeps at least its time") {
  Backoff backoff(WaitPolicy{.spins = 0, .yields = 0, .sleep_ns = 2'000'000});
  auto const before = now_ns();
  backoff.step();
  CHECK(now_ns() - before >= 2'000'000);
}

TEST_CASE("a futex returns at once when the word has changed, and when its time is over") {
  std::atomic<std::uint32_t> word{1};
  futex_wait(word, 0);
  auto const before = now_ns();
  futex_wait(word, 1, 3'000'000);
  CHECK(now_ns() - before >= 0);
  futex_wait(word, 1, 0);
}

TEST_CASE("a sleeping thread is woken") {
  std::atomic<std::uint32_t> word{0};
  pthread_t thread;
  auto const main = [](void* argument) -> void* {
    auto& w = *static_cast<std::atomic<std::uint32_t>*>(argument);
    while (w.load() == 0) futex_wait(w, 0);
    w.store(2);
    futex_wake_all(w);
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, nullptr, main, &word) == 0);
  timespec const pause{0, 2'000'000};
  ::nanosleep(&pause, nullptr);
  word.store(1);
  futex_wake_all(word);
  while (word.load() == 1) futex_wait(word, 1);
  ::pthread_join(thread, nullptr);
  CHECK(word.load() == 2);
}
