// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Threads that meet in one communicator: the second one is refused with both calls, and the first one goes on.

#include "comm/refused_waits.hpp"
#include "support/catch.hpp"

#include <tutti/comm.hpp>
#include <tutti/comm/occupancy.hpp>

#include <tutti/backend/threads.hpp>

#include <atomic>
#include <string>
#include <thread>

using namespace tutti;
using test::contains;

TEST_CASE("a call that meets another thread's in a communicator is refused, and names both and duplicate") {
  std::atomic<bool> refused{false};
  std::string text;
  ErrorKind kind = ErrorKind::internal;
  int sum_of_ranks = 0;
  threads::run(2, [&](auto& comm) {
    if (comm.rank() == 1) {
      while (!refused) std::this_thread::yield();  // rank 0 waits in its barrier until then
      comm.barrier();
    } else {
      std::thread other([&] {
        for (;;) {
          try {
            static_cast<void>(comm.try_probe());
            std::this_thread::yield();
          } catch (Error const& error) {
            text = error.what();
            kind = error.kind();
            break;
          }
        }
        refused = true;
      });
      // Between two calls the other thread may have a turn, which this one would meet.
      for (bool entered = false; !entered;) try {
          comm.barrier();
          entered = true;
        } catch (Error const& error) {
          if (!contains(error.what(), "try_probe")) throw;
        }
      other.join();
    }
    int const all = comm.all_reduce(comm.rank() + 1, sum);
    if (comm.rank() == 0) sum_of_ranks = all;
  });
  INFO(text);
  CHECK(kind == ErrorKind::invalid_argument);
  CHECK(contains(text, "tutti::try_probe [rank 0]: another thread is in barrier at occupancy.cpp:"));
  CHECK(contains(text, "duplicate()"));
  CHECK(sum_of_ranks == 3);
}

TEST_CASE("a thread in duplicate or mesh is told by that name") {
  std::string text[2];
  std::atomic<int> refusals{0};
  threads::run(2, [&](auto& comm) {
    for (int way = 0; way < 2; ++way) {
      auto const call = [&] {
        way == 0 ? static_cast<void>(comm.duplicate()) : static_cast<void>(comm.mesh({{"a", 2}}));
      };
      std::thread other([&] {
        for (bool entered = comm.rank() != 0; !entered;) try {
            call();
            entered = true;
          } catch (Error const& error) {
            if (!contains(error.what(), "start_statistics")) throw;  // whose turn it may be
          }
      });
      while (comm.rank() == 1 && refusals == way) std::this_thread::yield();  // it comes when rank 0 was refused
      while (comm.rank() == 0 && refusals == way) {
        try {
          comm.start_statistics();  // it is not refused before the other thread is inside, and communicates nothing
          std::this_thread::yield();
        } catch (Error const& error) {
          text[way] = error.what();
          ++refusals;
        }
      }
      if (comm.rank() == 1) call();
      other.join();
    }
  });
  CHECK(contains(text[0], "another thread is in duplicate at occupancy.cpp:"));
  CHECK(contains(text[1], "another thread is in mesh at occupancy.cpp:"));
}

TEST_CASE("a wait or test that is refused leaves the request, the plan and the group as they were") {
  std::string wrong[2];
  threads::run(2, [&](auto& comm) { wrong[comm.rank()] = test::refuse_waits(comm); });
  CHECK(wrong[0] + wrong[1] == "");
}

TEST_CASE("threads that take turns, and a request that another thread waits for, are no mistake") {
  std::atomic<int> wrong{0};
  threads::run(2, [&](auto& comm) {
    for (int turn = 0; turn < 50; ++turn) {
      auto request = comm.all_reduce_async(full<float>({3}, 1.0f), sum);
      std::thread other([&] {
        try {
          if (request.wait()(2) != 2) ++wrong;
          if (comm.all_reduce_value(turn, sum) != 2 * turn) ++wrong;
        } catch (Error const&) {
          ++wrong;
        }
      });
      other.join();
      if (comm.all_reduce(1, [&](int a, int b) { return a + b + 0 * comm.rank(); }) != 2) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("threads with a communicator each call at once") {
  std::atomic<int> wrong{0};
  threads::run(2, [&](auto& comm) {
    auto second = comm.duplicate();
    auto const work = [&](auto& mine) {
      try {
        for (int i = 0; i < 200; ++i)
          if (mine.all_reduce_async(full<int>({2}, i), sum).wait()(1) != 2 * i) ++wrong;
      } catch (Error const&) {
        ++wrong;
      }
    };
    std::thread other([&] { work(second); });
    work(comm);
    other.join();
  });
  CHECK(wrong == 0);
}

TEST_CASE("a thread that is inside enters again, and leaves once") {
  comm::Occupancy occupancy;
  auto const here = std::source_location::current();
  auto const never = [](std::string const& other) { FAIL(other); };
  {
    comm::Visit const outer(occupancy, "outer", here, never);
    { comm::Visit const inner(occupancy, "inner", here, never); }
    CHECK(contains(occupancy.call(), "outer at occupancy.cpp:"));
    bool refused = false;
    std::thread([&] { refused = occupancy.try_enter("late", here) == comm::Occupancy::Entered::not_at_all; }).join();
    CHECK(refused);
  }
  bool entered = false;
  std::thread([&] { entered = occupancy.try_enter("next", here) == comm::Occupancy::Entered::first; }).join();
  CHECK(entered);
}
