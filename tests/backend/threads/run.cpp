// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Runs of ranks and how they fail: whatever one rank does, the others learn it, with its name.
// Covers: <tutti/backend/threads/backend.hpp>
// Covers: <tutti/backend/threads/group.hpp>
// Covers: <tutti/comm/call_site.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/exec/context.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using test::contains;

namespace {

struct Outcome {
  bool thrown = false;
  ErrorKind kind = ErrorKind::internal;
  std::string text;
};

/// f on every rank; what each rank caught. Ranks go on after their error.
template <class F>
std::vector<Outcome> outcomes(int ranks, F&& f, CommunicatorOptions options = {}) {
  std::vector<Outcome> all(static_cast<std::size_t>(ranks));
  threads::run(
      ranks,
      [&](auto& comm) {
        auto& mine = all[static_cast<std::size_t>(comm.rank())];
        try {
          f(comm);
        } catch (Error const& error) {
          mine = {true, error.kind(), error.what()};
        }
      },
      options);
  return all;
}

void pause_ms(int ms) {
  timespec const time{ms / 1000, (ms % 1000) * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

template <class F>
Outcome outcome(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    return {true, error.kind(), error.what()};
  }
  return {};
}

}  // namespace

TEST_CASE("run calls the function once on each rank") {
  for (int ranks : {1, 2, 3, 4, 9}) {
    std::vector<int> calls(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& comm) { calls[static_cast<std::size_t>(comm.rank())] += comm.size(); });
    CHECK(calls == std::vector<int>(static_cast<std::size_t>(ranks), ranks));
  }
}

TEST_CASE("run divides the processors among its ranks") {
  int threads_of_rank = 0;
  threads::run(2, [&](auto& comm) {
    exec::Context context(comm.context_options());
    if (comm.rank() == 0) threads_of_rank = context.threads();
  });
  CHECK(threads_of_rank == std::max(1, exec::available_processors() / 2));
}

TEST_CASE("run refuses impossible numbers of ranks") {
  REQUIRE_ERROR(threads::run(0, [](auto&) {}), ErrorKind::invalid_argument, "0 ranks");
  REQUIRE_ERROR(threads::run(5000, [](auto&) {}), ErrorKind::invalid_argument, "between 1 and 1024");
}

TEST_CASE("a rank that throws an Error releases the others, and run throws it with its rank") {
  std::atomic<int> released{0};
  auto const result = outcome([&] {
    threads::run(3, [&](auto& comm) {
      if (comm.rank() == 1) throw Error(ErrorKind::format, "load", "the file is empty");
      try {
        comm.barrier();
      } catch (Error const& error) {
        if (contains(error.what(), "rank 1 failed") && contains(error.what(), "the file is empty")) ++released;
        throw;
      }
    });
  });
  CHECK(result.thrown);
  CHECK(result.kind == ErrorKind::format);
  CHECK(contains(result.text, "[rank 1]"));
  CHECK(released == 2);
}

TEST_CASE("an exception of another type comes nested in an Error that names the rank") {
  bool nested = false;
  try {
    threads::run(2, [&](auto& comm) {
      if (comm.rank() == 1) throw std::runtime_error("no such luck");
      comm.barrier();
    });
  } catch (Error const& error) {
    CHECK(contains(error.what(), "[rank 1]: threw no such luck"));
    try {
      std::rethrow_if_nested(error);
    } catch (std::runtime_error const&) {
      nested = true;
    }
  }
  CHECK(nested);
}

TEST_CASE("a rank that returns early is named by those that wait for it") {
  auto const all = outcomes(3, [](auto& comm) {
    if (comm.rank() != 2) static_cast<void>(comm.all_reduce(1.0, sum));
  });
  CHECK(!all[2].thrown);
  for (int rank : {0, 1}) {
    CAPTURE(all[static_cast<std::size_t>(rank)].text);
    CHECK(contains(all[static_cast<std::size_t>(rank)].text, "rank 2 has left"));
  }
  auto const receive = outcomes(2, [](auto& comm) {
    if (comm.rank() == 0) static_cast<void>(comm.template recv<int>(1));
  });
  CHECK(contains(receive[0].text, "rank 1 has left"));
  auto const send = outcomes(2, [](auto& comm) {
    if (comm.rank() == 0) comm.send(zeros<float>(Shape{100'000}), 1);
  });
  CHECK(contains(send[0].text, "rank 1 has left"));
}

TEST_CASE("the last message of a rank that has returned still arrives") {
  auto const all = outcomes(2, [](auto& comm) {
    if (comm.rank() == 1) {
      comm.send(std::vector<int>{5}, 0);
    } else {
      pause_ms(20);
      if (comm.template recv<int>(1)(0) != 5) throw Error(ErrorKind::internal, "test", "wrong value");
    }
  });
  CHECK(!all[0].thrown);
}

TEST_CASE("ranks that disagree learn who calls what, on every rank") {
  auto const both_named = [](std::vector<Outcome> const& all, std::string const& here, std::string const& there) {
    for (auto const& one : all) {
      CAPTURE(one.text);
      CHECK(one.thrown);
      CHECK(one.kind == ErrorKind::communication);
      CHECK(contains(one.text, "rank 0 calls " + here));
      CHECK(contains(one.text, "rank 1 calls " + there));
      CHECK(contains(one.text, "run.cpp:"));
    }
  };
  for (std::int64_t const size : {4, 40'000}) {  // sent inline, and by reference
    both_named(outcomes(3,
                        [&](auto& comm) {
                          auto x = zeros<float>(Shape{comm.rank() == 0 ? 2 * size : size});
                          comm.all_reduce(x, sum);
                        }),
               "all_reduce(sum, float32, count " + std::to_string(2 * size) + ")",
               "all_reduce(sum, float32, count " + std::to_string(size) + ")");
    both_named(outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      if (comm.rank() == 0) comm.all_reduce(x, sum);
      else comm.all_reduce(x, max);
    }), "all_reduce(sum", "all_reduce(max");
    both_named(outcomes(2, [&](auto& comm) {
      auto x = zeros<double>(Shape{size});
      comm.broadcast(x, comm.rank());
    }), "broadcast(root 0, float64", "broadcast(root 1, float64");
    both_named(outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      if (comm.rank() == 0) comm.broadcast(x);
      else comm.all_reduce(x, sum);
    }), "broadcast(", "all_reduce(");
    both_named(outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      auto y = zeros<std::int32_t>(Shape{size});
      if (comm.rank() == 0) comm.all_reduce(x, sum);
      else comm.all_reduce(y, sum);
    }), "all_reduce(sum, float32", "all_reduce(sum, int32");
  }
}

TEST_CASE("a send that misses its deadline while its message is taken was sent, and otherwise nobody gets it") {
  int differ = 0;
  auto const all = outcomes(2, [&](auto& comm) {
    std::vector<double> x(std::size_t{1} << 21, comm.rank());
    for (int turn = 0; turn < 200; ++turn) {
      comm.barrier();
      bool done = true;
      try {
        if (comm.rank() == 0) {
          comm.send(x, 1, 5, within(0.01));
        } else {
          timespec const time{0, 4'000'000L + 50'000L * turn};
          ::nanosleep(&time, nullptr);
          comm.recv(x, 0, 5, within(0.01));
        }
      } catch (Error const&) {
        done = false;
      }
      int const both = comm.all_reduce_value(done ? 1 : 0, sum);
      if (comm.rank() == 0 && both == 1) ++differ;
    }
  });
  CHECK(!all[0].thrown);
  CHECK(differ == 0);
}

TEST_CASE("a probe tells of messages under another tag, also when nobody is left to send") {
  auto const all = outcomes(2, [](auto& comm) {
    if (comm.rank() == 0) comm.send(std::vector<float>(4), 1, 5);
    else static_cast<void>(comm.probe(0, 6));
  });
  INFO(all[1].text);
  CHECK(contains(all[1].text, "rank 0 has left the communicator"));
  CHECK(contains(all[1].text, "; from rank 0 with tag 5 there is one of 16 bytes (float32)"));
}

TEST_CASE("a negative color is an error on every rank, which goes on") {
  auto const all = outcomes(3, [](auto& comm) {
    std::string text = "nothing was thrown";
    try {
      auto const group = comm.split(comm.rank() == 1 ? -4 : 0);
    } catch (Error const& error) {
      text = error.what();
    }
    comm.barrier();
    throw Error(ErrorKind::internal, "test", text);
  });
  for (auto const& one : all) {
    INFO(one.text);
    CHECK(contains(one.text, "rank 1 passes color -4, which is negative"));
  }
}

TEST_CASE("callables of different types are different calls") {
  auto const smaller = [](float a, float b) { return a < b ? a : b; };
  auto const larger = [](float a, float b) { return a < b ? b : a; };
  for (std::int64_t const size : {3, 40'000}) {
    auto const check = [](std::vector<Outcome> const& all, std::string const& name) {
      for (auto const& one : all) {
        CAPTURE(one.text);
        CHECK(one.thrown);
        CHECK(contains(one.text, "rank 0 calls " + name + "(callable #"));
        CHECK(contains(one.text, "rank 1 calls " + name + "(callable #"));
      }
    };
    check(outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      comm.rank() == 0 ? comm.all_reduce(x, smaller) : comm.all_reduce(x, larger);
    }), "all_reduce");
    check(outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      comm.rank() == 0 ? comm.reduce(x, smaller, 1) : comm.reduce(x, larger, 1);
    }), "reduce");
    check(outcomes(2, [&](auto& comm) {
      auto const x = zeros<float>(Shape{2, size});
      auto y = zeros<float>(Shape{size});
      comm.rank() == 0 ? comm.all_reduce_contributions(x, y, smaller) : comm.all_reduce_contributions(x, y, larger);
    }), "all_reduce_contributions");
    auto const roots = outcomes(2, [&](auto& comm) {
      auto x = zeros<float>(Shape{size});
      comm.reduce(x, smaller, comm.rank());
    });
    CHECK(contains(roots[0].text, "root 0"));
    CHECK(contains(roots[0].text, "root 1"));
    auto const same = outcomes(2, [&](auto& comm) {
      auto x = full<float>(Shape{size}, static_cast<float>(comm.rank()));
      comm.all_reduce(x, smaller);
      if (x(0) != 0.0f) throw Error(ErrorKind::internal, "test", "wrong value");
    });
    CHECK(!same[0].thrown);
  }
}

TEST_CASE("after a disagreement the communicator fails at once, with the first cause, and other groups work") {
  auto const all = outcomes(2, [](auto& comm) {
    auto other = comm.split(0);
    try {
      if (comm.rank() == 0) comm.barrier();
      else static_cast<void>(comm.broadcast(1));
    } catch (Error const&) {
    }
    if (other.all_reduce(1, sum) != 2) throw Error(ErrorKind::internal, "test", "the other group is broken");
    comm.barrier();
  });
  for (auto const& one : all) CHECK(contains(one.text, "rank 0 calls barrier()"));
}

TEST_CASE("a message is received as what was sent") {
  threads::run(2, [](auto& comm) {
    std::vector<float> const sent(6, 1.0f);
    if (comm.rank() == 0) {
      for (int i = 0; i < 4; ++i) comm.send(sent, 1);
      return;
    }
    REQUIRE(comm.probe(0).has_dtype);
    std::vector<double> wide(3);
    REQUIRE_ERROR(comm.recv(wide, 0), ErrorKind::dtype,
                  "holds float32, the buffer float64. Receive it as what was sent");
    REQUIRE_ERROR(static_cast<void>(comm.template recv<std::int32_t>(0)), ErrorKind::dtype,
                  "holds float32, the buffer int32");
    auto message = comm.match(0);
    REQUIRE_ERROR(comm.recv(std::move(message), wide), ErrorKind::dtype, "holds float32");
    CHECK(comm.template recv<float>(0)(5) == 1.0f);
  });
}

TEST_CASE("a deadline names who is missing") {
  auto const all = outcomes(3, [](auto& comm) {
    if (comm.rank() == 1) pause_ms(400);
    comm.barrier();
  }, {.deadline_seconds = 0.1});
  for (int rank : {0, 2}) {
    auto const& one = all[static_cast<std::size_t>(rank)];
    CAPTURE(one.text);
    CHECK(contains(one.text, "missing: 1"));
  }
  CHECK(all[1].kind == ErrorKind::timeout);  // the late rank learns it too
  auto const receive =
      outcomes(1, [](auto& comm) { static_cast<void>(comm.template recv<int>(0, 3)); }, {.deadline_seconds = 0.05});
  CHECK(receive[0].kind == ErrorKind::timeout);
  CHECK(contains(receive[0].text, "no message from rank 0 with tag 3"));
}

TEST_CASE("a send that nobody receives names its receiver and where that waits") {
  for (int ranks : {2, 3, 4}) {
    auto const all = outcomes(ranks, [](auto& comm) {
      if (comm.rank() > 1) return;
      std::vector<float> x(500'000), y(500'000);
      comm.send(x, 1 - comm.rank(), 3);
      comm.recv(y, 1 - comm.rank(), 3);
    }, {.deadline_seconds = 0.4});
    for (std::size_t r : {0u, 1u}) {
      CAPTURE(ranks, all[r].text);
      std::string const there = "rank " + std::to_string(1 - r);
      bool const first =
          contains(all[r].text,
                   there + " has not received the message with tag 3; " + there + " waits in send at run.cpp:");
      bool const second = contains(all[r].text, "rank " + std::to_string(1 - r) + " has left the communicator");
      CHECK((first || second));
    }
    CHECK((all[0].kind == ErrorKind::timeout || all[1].kind == ErrorKind::timeout));
  }
  auto const alone =
      outcomes(1, [](auto& comm) { comm.send(std::vector<float>(500'000), 0, 3); }, {.deadline_seconds = 0.2});
  CHECK(contains(alone[0].text, "rank 0 has not received the message with tag 3; rank 0 waits in send at run.cpp:"));
}

TEST_CASE("a receive that waits in vain names the messages that are there") {
  for (int ranks : {1, 2, 3, 4}) {
    auto const all = outcomes(ranks, [&](auto& comm) {
      std::vector<double> x(3);
      if (comm.rank() == ranks - 1) {
        comm.send(x, 0, 5);
        comm.send(std::vector<int>(2), 0, 6);
      }
      if (comm.rank() == 0) {
        static_cast<void>(comm.probe(ranks - 1, 6));  // kept aside, and named like the others
        comm.recv(x, ranks - 1, 7, within(0.1));
      }
      if (ranks > 1) comm.barrier();
    }, {.deadline_seconds = 0.3});
    CAPTURE(ranks, all[0].text);
    std::string const from = "from rank " + std::to_string(ranks - 1);
    CHECK(contains(all[0].text, "no message " + from + " with tag 7"));
    CHECK(contains(all[0].text, "; " + from + " with tag 6 there is one of 8 bytes (int32)"));
    CHECK(contains(all[0].text, "; " + from + " with tag 5 there is one of 24 bytes (float64)"));
  }
}

TEST_CASE("one call may have a deadline of its own") {
  auto const all = outcomes(2, [](auto& comm) {
    if (comm.rank() == 1) {
      auto const apart = comm.duplicate(), third = comm.duplicate();
      comm.barrier();
      return pause_ms(400);  // to leave would be another error
    }
    std::vector<int> x(3);
    REQUIRE_ERROR(comm.recv(x, any_source, 3, within(0.02)), ErrorKind::timeout, "not complete after 0.02 s");
    REQUIRE_ERROR(static_cast<void>(comm.template recv<int>(any_source, 3, within(0.02))), ErrorKind::timeout,
                  "after 0.02 s");
    REQUIRE_ERROR(static_cast<void>(comm.probe(any_source, 3, within(0.02))), ErrorKind::timeout, "after 0.02 s");
    auto started = comm.recv_async(x, any_source, 3, within(0.02));
    REQUIRE_ERROR(started.wait(), ErrorKind::timeout, "after 0.02 s");
    auto waited = comm.recv_async(x, any_source, 3, within(100));
    REQUIRE_ERROR(waited.wait(within(0.03)), ErrorKind::timeout, "after 0.03 s");
    auto group = comm.group();
    group.recv(x, any_source, 3, within(0.02));
    REQUIRE_ERROR(group.wait(), ErrorKind::timeout, "after 0.02 s");
    auto apart = comm.duplicate();
    auto plan_apart = apart.barrier_plan(within(0.02));
    plan_apart.start();
    REQUIRE_ERROR(plan_apart.wait(), ErrorKind::timeout, "after 0.02 s");
    auto third = comm.duplicate();
    REQUIRE_ERROR(static_cast<void>(third.split(0, 0, within(0.02))), ErrorKind::timeout, "after 0.02 s");
    REQUIRE_ERROR(comm.barrier(within(0)), ErrorKind::invalid_argument, "0 s is no deadline");
    comm.barrier();  // what did not come harms nobody
    CHECK(comm.deadline_seconds() == 60);
    auto plan = comm.all_reduce_plan(x, sum);
    plan.start(within(0.02));
    plan.wait();
  }, {.deadline_seconds = 60});
  CHECK(all[0].kind == ErrorKind::timeout);
  CHECK(contains(all[0].text, "not complete after 0.02 s"));
}

TEST_CASE("sums of more ranks than write each other's results at once, and sums that go past the caches") {
  struct Case {
    int ranks;
    std::int64_t count;
    bool in_place;
  };
  for (Case const what :
       {Case{10, 5'003, false}, Case{10, 5'003, true}, Case{2, (std::int64_t{4} << 20) + 5, false}}) {
    INFO(what.ranks << " ranks, " << what.count << " elements, " << (what.in_place ? "in place" : "out of place"));
    std::vector<std::int64_t> wrong(static_cast<std::size_t>(what.ranks), -1);
    threads::run(what.ranks, [&](auto& comm) {
      Tensor<float> x({what.count});
      for (std::int64_t i = 0; i < what.count; ++i) x(i) = static_cast<float>(i % 100 + comm.rank());
      auto sum_of = what.in_place ? std::move(x) : full<float>({what.count}, -1.0f);
      if (what.in_place) comm.all_reduce(sum_of, sum);
      else comm.all_reduce(x, sum_of, sum);
      int const ranks = what.ranks;
      std::int64_t& mine = wrong[static_cast<std::size_t>(comm.rank())] = 0;
      for (std::int64_t i = 0; i < what.count; ++i)
        mine += sum_of(i) != static_cast<float>(i % 100 * ranks + ranks * (ranks - 1) / 2);
    });
    CHECK(wrong == std::vector<std::int64_t>(static_cast<std::size_t>(what.ranks)));
  }
}

TEST_CASE("an operator that throws on one rank ends the collective on all") {
  for (std::int64_t const size : {3, 50'000}) {
    std::atomic<int> released{0};
    auto const result = outcome([&] {
      threads::run(2, [&](auto& comm) {
        auto x = zeros<float>(Shape{size});
        try {
          comm.all_reduce(x, [&](float a, float b) {
            if (comm.rank() == 1) throw std::runtime_error("bad operator");
            return a + b;
          });
          comm.barrier();
        } catch (...) {
          ++released;
          throw;
        }
      });
    });
    CHECK(result.thrown);
    CHECK(released == 2);
  }
}

TEST_CASE("a request that is dropped while its rank fails holds nobody up") {
  auto const result = outcome([&] {
    threads::run(2, [&](auto& comm) {
      auto group = comm.split(0);
      auto dropped = group.all_reduce_async(zeros<float>(Shape{10'000}), sum);
      if (comm.rank() == 1) throw Error(ErrorKind::io, "test", "disk full");
      dropped.wait();
      group.barrier();
    });
  });
  CHECK(result.thrown);
  CHECK(contains(result.text, "rank 1"));
}

TEST_CASE("launch reads the number of ranks, gives the largest exit code, and turns exceptions into a message") {
  auto const launched = [](std::vector<std::string> arguments, auto&& f) {
    std::vector<char*> argv{const_cast<char*>("program")};
    for (auto& argument : arguments) argv.push_back(argument.data());
    return launch<Threads>(static_cast<int>(argv.size()), argv.data(), f);
  };
  std::atomic<int> size{0};
  CHECK(launched({"--ranks", "3"}, [&](auto& comm) { size = comm.size(); }) == 0);
  CHECK(size == 3);
  CHECK(launched({"--other", "--ranks=2"}, [&](auto& comm) { return comm.rank() * 4; }) == 4);
  CHECK(launched({"--ranks=2"}, [&](auto&) { throw Error(ErrorKind::io, "test", "expected in this test's output"); }) ==
        1);
  CHECK(launched({"--ranks=many"}, [&](auto&) {}) == 1);
  CHECK(launched({"--ranks"}, [&](auto&) {}) == 1);
  ::setenv("TUTTI_RANKS", "2", 1);
  CHECK(launched({}, [&](auto& comm) { return comm.size(); }) == 2);
  ::unsetenv("TUTTI_RANKS");
  CHECK(launched({}, [&](auto& comm) { return comm.size() == exec::available_processors() ? 0 : 1; }) == 0);
}

TEST_CASE("ranks that wait on different communicators are told where the others are") {
  auto const found = outcomes(2, [](auto& comm) {
    auto other = comm.duplicate();
    comm.set_deadline_seconds(0.5);
    other.set_deadline_seconds(0.5);
    if (comm.rank() == 0) comm.barrier();
    else other.barrier();
  });
  int told = 0;
  for (auto const& outcome : found) {
    INFO(outcome.text);
    CHECK(outcome.thrown);
    told += contains(outcome.text, "on another communicator (world");
  }
  CHECK(told >= 1);  // the other one may find the first gone
}

TEST_CASE("what was dropped is complete when complete_dropped returns, and its buffers are the caller's again") {
  threads::run(3, [](auto& comm) {
    for (int round = 0; round < 50; ++round) {
      auto x = std::make_unique<std::vector<double>>(20'000, 1.0);
      std::vector<float> y(3, 1.0f);
      {
        auto plan = comm.all_reduce_plan(*x, sum);
        plan.start();
        static_cast<void>(comm.all_reduce_async(y, sum));
      }
      if (comm.rank() == round % 3) pause_ms(1);
      comm.complete_dropped();
      bool const right = (*x)[7] == 3.0 && y[2] == 3.0f;
      x.reset();
      if (!right) throw Error(ErrorKind::internal, "test", "not complete");
    }
  });
}

TEST_CASE("complete_dropped throws what a dropped call failed with, or when nobody else calls it") {
  auto const found = outcomes(2, [](auto& comm) {
    comm.set_deadline_seconds(0.3);
    std::vector<float> x(8, 1.0f);
    if (comm.rank() == 0) static_cast<void>(comm.all_reduce_async(x, sum));
    else pause_ms(600);
    comm.complete_dropped();
  });
  CAPTURE(found[0].text, found[1].text);
  CHECK(contains(found[0].text, "all_reduce"));
  CHECK(contains(found[0].text, "missing: 1"));
  CHECK(!found[1].thrown);
}

TEST_CASE("where a rank failed stands, after that communicator is gone, until it calls something else") {
  std::string before, after;
  threads::run(2, [&](auto& comm) {
    auto const refused = [&](double seconds) -> std::string {
      try {
        static_cast<void>(comm.template recv<int>(1, 5, within(seconds)));
      } catch (Error const& error) {
        return error.what();
      }
      return {};
    };
    try {
      auto other = comm.duplicate();
      if (comm.rank() == 1) other.barrier(within(0.1));
      before = refused(0.6);
    } catch (Error const&) {  // by which `other` is gone on rank 1
      pause_ms(900);
      comm.send(std::vector<int>{1}, 0, 4);
    }
    if (comm.rank() == 0) {
      static_cast<void>(comm.template recv<int>(1, 4));
      after = refused(0.1);
    } else {
      pause_ms(300);
    }
  });
  CAPTURE(before, after);
  CHECK(contains(before, "rank 1 waits in barrier at run.cpp"));
  CHECK(contains(before, "on another communicator (world-"));
  CHECK(contains(after, "no message from rank 1"));
  CHECK(!contains(after, "waits in barrier"));
}

TEST_CASE("a rank that waits for nothing any more says so on its other communicators") {
  threads::run(2, [](auto& comm) {
    auto other = comm.duplicate();
    if (comm.rank() == 1) pause_ms(600);
    comm.barrier(within(5));  // rank 0 waits long enough to announce it
    if (comm.rank() == 0) pause_ms(600);
    if (comm.rank() == 1) {
      auto const late = outcome([&] { other.barrier(within(0.3)); });
      if (!contains(late.text, "missing: 0 (waits for nothing on this communicator"))
        throw Error(ErrorKind::internal, "test", late.text);
    }
  });
}

TEST_CASE("a group of messages ends with the first that fails, whatever the others wait for") {
  auto const begin = std::chrono::steady_clock::now();
  auto const found = outcomes(3, [](auto& comm) {
    std::vector<float> x(4), y(4);
    if (comm.rank() == 0) {
      std::vector<float> const large(50'000);
      auto group = comm.group();
      group.send(large, 1, 6);  // nobody takes it
      group.recv(x, 1, 7);      // nothing comes
      group.recv(y, 2, 8);      // of another size
      group.wait(within(20));
    }
    if (comm.rank() == 2) comm.send(std::vector<float>(5), 0, 8);
    if (comm.rank() == 1) pause_ms(1000);
  });
  CHECK(found[0].kind == ErrorKind::shape);
  CHECK(contains(found[0].text, "tutti::recv [rank 0]: the message from rank 2"));
  CHECK(contains(found[0].text, "has 20 bytes, the buffer 16"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("errors name the operation that was called, also where it is made of others") {
  auto const operation_of = [](auto&& call) {
    auto const found = outcomes(2, [&](auto& comm) {
      comm.set_deadline_seconds(0.3);
      if (comm.rank() == 0) call(comm);
      else pause_ms(600);
    });
    return found[0].text.substr(0, found[0].text.find(' '));
  };
  CHECK(operation_of([](auto& comm) { comm.split(0); }) == "tutti::split");
  CHECK(operation_of([](auto& comm) { comm.duplicate(); }) == "tutti::duplicate");
  CHECK(operation_of([](auto& comm) { comm.mesh({{"data", 2}}); }) == "tutti::mesh");
  CHECK(operation_of([](auto& comm) { static_cast<void>(comm.gather_v(std::vector<int>(3))); }) == "tutti::gather_v");
}

TEST_CASE("after a failed collective messages fail at once too, with its cause") {
  auto const found = outcomes(2, [](auto& comm) {
    std::vector<float> x(3);
    try {
      comm.rank() == 0 ? comm.broadcast(x) : comm.all_reduce(x, sum);
    } catch (Error const&) {
    }
    auto const send = outcome([&] { comm.send(x, 1 - comm.rank()); });
    auto const receive = outcome([&] { comm.recv(x, 1 - comm.rank()); });
    auto const inferred = outcome([&] { static_cast<void>(comm.template recv<float>()); });
    auto const probe = outcome([&] { static_cast<void>(comm.try_probe()); });
    for (auto const& one : {send, receive, inferred, probe})
      if (!contains(one.text, "ranks disagree: rank 0 calls broadcast"))
        throw Error(ErrorKind::internal, "test", "this came instead: " + one.text);
  });
  for (auto const& one : found) CHECK(one.text == "");
}

TEST_CASE("ranks with different numbers of contributions are told") {
  auto const found = outcomes(2, [](auto& comm) {
    auto const x = zeros<float>(Shape{comm.rank() + 2, 3});
    static_cast<void>(comm.all_reduce_contributions(x, sum));
  });
  for (auto const& one : found) {
    INFO(one.text);
    CHECK(contains(one.text, "count 3, 2 contributions)"));
    CHECK(contains(one.text, "count 3, 3 contributions)"));
  }
}
