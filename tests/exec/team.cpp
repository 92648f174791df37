// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/team.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using exec::Team;
using exec::WaitPolicy;

namespace {

/// More threads than this machine has processors must work too; sleeping at once keeps them from burning its time.
WaitPolicy const patient{.spins = 0, .yields = 10};

}  // namespace

TEST_CASE("every thread of a team runs once per region, with its own number") {
  for (int threads : {1, 2, 3, 4, 7, 16}) {
    CAPTURE(threads);
    Team team(threads, patient);
    CHECK(team.size() == threads);
    std::vector<std::int64_t> runs(static_cast<std::size_t>(threads));
    std::vector<pthread_t> handles(static_cast<std::size_t>(threads));
    constexpr int regions = 300;
    for (int region = 0; region < regions; ++region)
      team.run([&](int thread) {
        ++runs[static_cast<std::size_t>(thread)];
        handles[static_cast<std::size_t>(thread)] = ::pthread_self();
      });
    for (std::int64_t count : runs) CHECK(count == regions);
    CHECK(::pthread_equal(handles[0], ::pthread_self()));
    for (std::size_t i = 1; i < handles.size(); ++i) CHECK(!::pthread_equal(handles[i], handles[0]));
  }
}

TEST_CASE("what the caller wrote before a region is seen in it, and what threads wrote is seen after it") {
  Team team(3);
  std::vector<int> data(3);
  int wrong = 0;
  for (int region = 0; region < 2000; ++region) {
    for (int& value : data) value = region;
    team.run([&](int thread) { data[static_cast<std::size_t>(thread)] += thread; });
    for (int i = 0; i < 3; ++i) wrong += data[static_cast<std::size_t>(i)] != region + i;
  }
  CHECK(wrong == 0);
}

TEST_CASE("barriers separate phases") {
  for (int threads : {1, 2, 4, 5}) {
    Team team(threads, patient);
    std::vector<int> phase(static_cast<std::size_t>(threads));
    std::atomic<int> wrong{0};
    for (int region = 0; region < 20; ++region)
      team.run([&](int thread) {
        for (int step = 1; step <= 20; ++step) {
          phase[static_cast<std::size_t>(thread)] = region * 100 + step;
          team.barrier();
          for (int value : phase) wrong += value != region * 100 + step;
          team.barrier();
        }
      });
    CHECK(wrong == 0);
  }
}

TEST_CASE("an exception of any thread arrives at the caller after all threads have returned") {
  for (int threads : {1, 2, 4}) {
    Team team(threads, patient);
    for (int thrower = 0; thrower < threads; ++thrower) {
      CAPTURE(threads, thrower);
      std::atomic<int> finished{0};
      std::string text;
      try {
        team.run([&](int thread) {
          if (thread == thrower) throw std::runtime_error("from " + std::to_string(thread));
          ++finished;
        });
      } catch (std::runtime_error const& error) {
        text = error.what();
      }
      CHECK(text == "from " + std::to_string(thrower));
      CHECK(finished == threads - 1);
      std::atomic<int> after{0};
      team.run([&](int) { ++after; });
      CHECK(after == threads);
    }
  }
}

TEST_CASE("of several exceptions the lowest thread's is rethrown, and none is kept for later") {
  Team team(4, patient);
  for (int round = 0; round < 50; ++round) {
    int caught = -1;
    try {
      team.run([](int thread) {
        if (thread > 0) throw thread;
      });
    } catch (int thread) {
      caught = thread;
    }
    REQUIRE(caught == 1);
    team.run([](int) {});
  }
}

TEST_CASE("threads at a barrier do not wait for one that has thrown") {
  for (int threads : {2, 3, 5}) {
    Team team(threads, patient);
    for (int thrower = 0; thrower < threads; ++thrower)
      for (int before = 0; before < 3; ++before) {
        CAPTURE(threads, thrower, before);
        std::atomic<int> passed{0};
        bool thrown = false;
        try {
          team.run([&](int thread) {
            for (int i = 0; i < 3; ++i) {
              if (thread == thrower && i == before) throw Error(ErrorKind::internal, "test", "thrown");
              team.barrier();
              ++passed;
            }
          });
        } catch (Error const&) {
          thrown = true;
        }
        CHECK(thrown);
        CHECK(passed == 3 * (threads - 1) + before);
      }
  }
  Team everyone(4, patient);
  bool thrown = false;
  try {
    everyone.run([](int thread) { throw thread; });
  } catch (int thread) {
    thrown = thread == 0;
  }
  CHECK(thrown);
  everyone.run([&](int) { everyone.barrier(); });
}

TEST_CASE("a region inside a region is refused, on one thread as on several") {
  for (int threads : {1, 3}) {
    Team team(threads, patient);
    std::string text;
    try {
      team.run([&](int thread) {
        if (thread == threads - 1) team.run([](int) {});
      });
    } catch (Error const& error) {
      text = error.what();
    }
    CHECK(test::contains(text, "inside another one"));
    int runs = 0;
    team.run([&](int thread) {
      if (thread == 0) ++runs;
    });
    CHECK(runs == 1);
  }
}

TEST_CASE("teams are independent: each rank of a process may own one") {
  Team first(2, patient);
  Team second(3, patient);
  std::atomic<int> inner{0};
  first.run([&](int thread) {
    if (thread == 1) second.run([&](int) { ++inner; });
  });
  CHECK(inner == 3);
}

TEST_CASE("workers that fell asleep wake up for the next region") {
  Team team(3, WaitPolicy{.spins = 0, .yields = 0});
  std::atomic<int> runs{0};
  for (int region = 0; region < 50; ++region) {
    timespec const pause{0, region % 5 == 0 ? 2'000'000 : 0};
    ::nanosleep(&pause, nullptr);
    team.run([&](int) { ++runs; });
  }
  CHECK(runs == 150);
}

TEST_CASE("functions of any kind are run: mutable, move-only, const") {
  Team team(2, patient);
  struct Counter {
    std::atomic<int>* count;
    void operator()(int) const { ++*count; }
  };
  std::atomic<int> count{0};
  Counter const constant{&count};
  team.run(constant);
  team.run(Counter{&count});
  CHECK(count == 4);
}

TEST_CASE("an impossible number of threads is refused") {
  REQUIRE_ERROR(Team(0), ErrorKind::invalid_argument, "0 threads");
  REQUIRE_ERROR(Team(-1), ErrorKind::invalid_argument, "-1 threads");
  REQUIRE_ERROR(Team(5000), ErrorKind::invalid_argument, "between 1 and 4096");
}

TEST_CASE("many short-lived teams start and stop") {
  for (int i = 0; i < 100; ++i) {
    Team team(1 + i % 4, patient);
    if (i % 2 == 0) team.run([](int) {});
  }
}
