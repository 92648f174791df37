// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Each fault does what its plan says, where it says so, and again the second time. tests/comm/fault_schedules.cpp has
/// a thousand plans.

#include "comm/messages_only.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"

#include <tutti/comm/fault_injector.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/testing/laws.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace tutti;
using test::contains;

namespace {

static_assert(Backend<FaultInjector<Threads>> && Backend<FaultInjector<FaultInjector<test::MessagesOnly>>>);

struct Outcome {
  std::string error;
  ErrorKind kind = ErrorKind::internal;
  std::vector<float> x;
  List<PlannedFault> injected;
  std::int64_t operations = 0;
};

/// f(comm, x) on `ranks` ranks under a plan; x holds n times the rank's number + 1.
template <class F>
std::vector<Outcome> under(FaultPlan const& plan, int ranks, std::size_t n, double deadline, F&& f) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](auto& plain) {
    plain.set_deadline_seconds(deadline);
    auto comm = decorated<FaultInjector>(plain, plan);
    auto& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
    outcome.x.assign(n, static_cast<float>(comm.rank() + 1));
    try {
      f(comm, outcome.x);
    } catch (Error const& error) {
      outcome.error = error.what();
      outcome.kind = error.kind();
    }
    outcome.injected = comm.backend().injected();
    outcome.operations = comm.backend().operations();
  });
  return outcomes;
}

FaultPlan one(int rank, std::int64_t operation, Fault fault) {
  FaultPlan plan;
  plan.faults = {{rank, operation, fault}};
  return plan;
}

bool same(List<PlannedFault> const& a, List<PlannedFault> const& b) {
  bool equal = a.size() == b.size();
  for (std::size_t i = 0; equal && i < a.size(); ++i) equal = a[i] == b[i];
  return equal;
}

}  // namespace

TEST_CASE("a plan is a function of seed, rank and operation, and keeps its probabilities") {
  FaultPlan plan;
  plan.seed = 5;
  plan.delay = 0.1;
  plan.drop = 0.2;
  plan.kill = 0.05;
  plan.corrupt = 0.4;
  plan.faults = {{3, 17, Fault::kill}, {3, 18, Fault::none}};
  FaultPlan other = plan;
  other.seed = 6;
  std::array<int, 5> counts{};
  int differing = 0;
  for (int i = 0; i < 100'000; ++i) {
    Fault const fault = plan.at(i % 4, i / 4);
    CHECK(fault == plan.at(i % 4, i / 4));
    ++counts[static_cast<std::size_t>(fault)];
    differing += fault != other.at(i % 4, i / 4);
  }
  CHECK(plan.at(3, 17) == Fault::kill);
  CHECK(plan.at(3, 18) == Fault::none);
  std::array<double, 5> const expected{0.25, 0.1, 0.2, 0.05, 0.4};
  for (std::size_t i = 0; i < 5; ++i) {
    INFO(name(static_cast<Fault>(i)));
    CHECK(std::abs(counts[i] / 1e5 - expected[i]) < 0.01);  // six standard deviations
  }
  CHECK(differing > 60'000);
}

TEST_CASE("a plan that makes no sense is refused") {
  auto const with = [](FaultPlan const& plan) { plan.check(); };
  FaultPlan plan;
  plan.drop = -0.1;
  REQUIRE_ERROR(with(plan), ErrorKind::invalid_argument, "is -0.1");
  plan.drop = 0.7;
  plan.kill = 0.7;
  REQUIRE_ERROR(with(plan), ErrorKind::invalid_argument, "is 1.4");
  plan.kill = 0;
  plan.delay_seconds = -1;
  REQUIRE_ERROR(with(plan), ErrorKind::invalid_argument, "delay_seconds is -1");
  threads::run(1, [&](auto& comm) {
    REQUIRE_ERROR(decorated<FaultInjector>(comm, plan), ErrorKind::invalid_argument, "delay_seconds");
  });
}

TEST_CASE("a delay stalls the rank, and nothing goes wrong within the deadline") {
  FaultPlan plan = one(1, 1, Fault::delay);
  plan.delay_seconds = 0.05;
  auto const begin = exec::now_ns();
  auto const outcomes = under(plan, 2, 3, 10, [](auto& comm, auto& x) {
    comm.barrier();
    comm.all_reduce(x, sum);
  });
  CHECK(exec::now_ns() - begin >= 50'000'000);
  for (auto const& outcome : outcomes) {
    CHECK(outcome.error.empty());
    CHECK(outcome.x == std::vector<float>(3, 3.0f));
    CHECK(outcome.operations == 2);
  }
  CHECK(outcomes[0].injected.empty());
  CHECK(same(outcomes[1].injected, plan.faults));
}

TEST_CASE("a dropped collective ends on every rank in an error, which says on its own rank what was dropped") {
  for (std::size_t const n : {3u, 5000u}) {
    auto const outcomes = under(one(1, 1, Fault::drop), 3, n, 0.1, [](auto& comm, auto& x) {
      comm.barrier();
      auto first = comm.all_reduce_async(x, sum);
      std::vector<float> y(x);
      auto second = comm.all_reduce_async(y, sum);  // must not be taken for the first
      second.wait();
      first.wait();
    });
    bool told = false;
    for (auto const& outcome : outcomes) {
      INFO(outcome.error);
      CHECK(!outcome.error.empty());
      told |= contains(outcome.error, "missing: 1") || contains(outcome.error, "has dropped all_reduce");
    }
    CHECK(told);
    CHECK(outcomes[0].x == std::vector<float>(n, 1.0f));
    CHECK(same(outcomes[1].injected, {{1, 1, Fault::drop}}));
  }
}

TEST_CASE("a dropped message is lost, and so is what would arrive in its place") {
  for (std::size_t const n : {3u, 50'000u}) {
    for (int const dropper : {0, 1}) {
      auto const outcomes = under(one(dropper, 1, Fault::drop), 2, n, 0.1, [&](auto& comm, auto& x) {
        std::array<int, 1> note{1};
        if (comm.rank() == 0) {
          comm.send(note, 1, 1);
          auto first = comm.send_async(x, 1, 2);
          auto second = comm.send_async(x, 1, 2);
          comm.send(note, 1, 3);  // of another tag: arrives
          second.wait();
          first.wait();
        } else {
          comm.recv(note, 0, 1);
          auto lost = comm.recv_async(x, 0, 2);
          comm.recv(note, 0, 3);
          x[0] = -1.0f;
          lost.wait();
        }
      });
      INFO(outcomes[0].error << "\n" << outcomes[1].error);
      CHECK(outcomes[1].x[0] == -1.0f);
      CHECK((contains(outcomes[1].error, "rank 0 has left") ||
             contains(outcomes[1].error, "rank 0 failed: tutti::send") ||
             contains(outcomes[1].error, dropper == 0 ? "no message from rank 0 with tag 2" : "dropped a receive")));
      // A small message, and a lost one, is complete for its sender.
      CHECK(outcomes[0].error.empty() == (n == 3 || dropper == 0));
    }
  }
}

TEST_CASE("a reduction by messages of which one is dropped ends in an error, or right") {
  struct Case {
    std::size_t count;
    std::int64_t operation;  // of rank 0
    std::vector<int> failing;
  };
  // The two messages of the comparison carry what is small: who has got it has all it needs.
  for (auto const& [count, operation, failing] : {Case{2000, 2, {0, 1}}, Case{8, 0, {0}}, Case{8, 1, {1}}}) {
    std::vector<std::string> errors(2);
    std::vector<float> results(2);
    threads::run(2, [&](auto& plain) {
      Communicator<FaultInjector<test::MessagesOnly>> comm(
          FaultInjector<test::MessagesOnly>(test::MessagesOnly(plain.backend().split(0, 0, {0, 1})),
                                            one(0, operation, Fault::drop)),
          {0.1});
      auto const r = static_cast<std::size_t>(comm.rank());
      std::vector<float> x(count, static_cast<float>(comm.rank() + 1));
      try {
        comm.all_reduce(x, sum);
      } catch (Error const& error) {
        errors[r] = error.what();
      }
      results[r] = x.back();
    });
    CAPTURE(count, operation);
    for (int r : {0, 1}) {
      CAPTURE(r);
      bool const fails = std::find(failing.begin(), failing.end(), r) != failing.end();
      auto const& error = errors[static_cast<std::size_t>(r)];
      if (fails) CHECK(contains(error, "all_reduce"));
      else CHECK(error.empty());
      if (!fails) CHECK(results[static_cast<std::size_t>(r)] == 3.0f);
    }
  }
}

TEST_CASE("a killed rank throws at every further call, and the others learn its name at once") {
  auto const begin = exec::now_ns();
  auto const outcomes = under(one(2, 1, Fault::kill), 3, 3, 60, [](auto& comm, auto& x) {
    comm.barrier();
    try {
      comm.all_reduce(x, sum);
    } catch (Error const& error) {
      if (comm.rank() != 2) throw;
      std::array<int, 1> note{};
      laws::Report report;
      laws::expect_error(report, ErrorKind::communication, "killed rank 2 at its operation 1",
                         [&] { comm.send(note, 0); });
      laws::expect_error(report, ErrorKind::communication, "killed", [&] { static_cast<void>(comm.try_probe()); });
      laws::expect_error(report, ErrorKind::communication, "killed", [&] { static_cast<void>(comm.split(0)); });
      if (report.failures != 0) throw Error(ErrorKind::internal, "test", report.text);
      throw;
    }
  });
  CHECK(exec::now_ns() - begin < 30'000'000'000);
  CHECK(contains(outcomes[2].error, "the fault plan has killed rank 2 at its operation 1"));
  for (std::size_t r : {0u, 1u}) {
    INFO(outcomes[r].error);
    CHECK(contains(outcomes[r].error, "rank 2"));
  }
}

TEST_CASE("a rank that is a process can be killed like one") {
  FaultPlan plan = one(0, 1, Fault::kill);
  plan.kill_process = true;
  auto const run = [&] {
    return under(plan, 1, 3, 10, [](auto& comm, auto& x) {
             comm.barrier();
             comm.all_reduce(x, sum);
           })[0]
        .error;
  };
  CHECK(test::in_child({}, run) == "status " + std::to_string(SIGKILL));
}

TEST_CASE("corrupt flips one bit of what is sent, and leaves the caller's buffer alone") {
  for (std::size_t const n : {3u, 50'000u}) {
    auto const bits = [](std::vector<float> const& x, float expected) {
      int flipped = 0;
      for (float const value : x) {
        std::uint32_t a;
        std::uint32_t b;
        std::memcpy(&a, &value, 4);
        std::memcpy(&b, &expected, 4);
        flipped += __builtin_popcount(a ^ b);
      }
      return flipped;
    };
    auto outcomes = under(one(0, 0, Fault::corrupt), 2, n, 60, [](auto& comm, auto& x) { comm.broadcast(x, 0); });
    CHECK(bits(outcomes[0].x, 1.0f) == 0);
    CHECK(bits(outcomes[1].x, 1.0f) == 1);
    CHECK(same(outcomes[0].injected, {{0, 0, Fault::corrupt}}));
    outcomes = under(one(0, 0, Fault::corrupt), 2, n, 60, [](auto& comm, auto& x) {
      if (comm.rank() == 0) comm.send(x, 1);
      else comm.recv(x, 0);
    });
    CHECK(bits(outcomes[0].x, 1.0f) == 0);
    CHECK(bits(outcomes[1].x, 1.0f) == 1);
    outcomes = under(one(1, 0, Fault::corrupt), 2, n, 60, [](auto& comm, auto& x) {
      std::vector<float> all(2 * x.size());
      comm.all_gather(x, all);
      x.assign(all.end() - static_cast<std::ptrdiff_t>(x.size()), all.end());
    });
    CHECK(bits(outcomes[0].x, 2.0f) == 1);
    // What sends nothing stays as it is, and is not counted.
    outcomes = under(one(1, 0, Fault::corrupt), 2, n, 60, [](auto& comm, auto& x) {
      comm.broadcast(x, 0);
      comm.barrier();
    });
    CHECK(bits(outcomes[1].x, 1.0f) == 0);
    CHECK(outcomes[1].injected.empty());
  }
}

TEST_CASE("a flipped bool is still a bool") {
  FaultPlan plan;
  plan.corrupt = 1;
  threads::run(2, [&](auto& plain) {
    auto comm = decorated<FaultInjector>(plain, plan);
    Tensor<bool> x(Shape{1});
    x.fill(true);
    comm.broadcast(x, 0);
    if (comm.rank() == 1 && x(0)) throw Error(ErrorKind::internal, "test", "not flipped");
  });
}

TEST_CASE("the same plan injects the same faults again, on split communicators too, and so does what it noted") {
  FaultPlan plan;
  plan.seed = 11;
  plan.delay = 0.2;
  plan.corrupt = 0.3;
  plan.delay_seconds = 1e-6;
  for (int r = 0; r < 4; ++r) plan.faults.push_back({r, 0, Fault::none});  // split's own exchange of colors
  auto const program = [](auto& comm, auto& x) {
    auto half = comm.split(comm.rank() % 2);
    for (int i = 0; i < 10; ++i) {
      half.all_reduce(x, max);
      comm.all_reduce(x, max);
    }
  };
  auto const first = under(plan, 4, 100, 60, program);
  auto const second = under(plan, 4, 100, 60, program);
  FaultPlan replay;
  replay.delay_seconds = 1e-6;
  for (auto const& outcome : first) replay.faults.append(outcome.injected);
  auto const third = under(replay, 4, 100, 60, program);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(first[r].error.empty());
    CHECK(first[r].operations == 21);
    CHECK(first[r].injected.size() > 1);
    CHECK(same(first[r].injected, second[r].injected));
    CHECK(same(first[r].injected, third[r].injected));
    CHECK(first[r].x == second[r].x);
    CHECK(!same(first[r].injected, first[(r + 1) % 4].injected));
  }
}

TEST_CASE("a split whose colors are damaged on the way is an error on the rank that sent them") {
  auto const outcomes = under(one(1, 0, Fault::corrupt), 3, 1, 0.2, [](auto& comm, auto&) {
    auto half = comm.split(0);
    half.barrier();
  });
  CHECK(contains(outcomes[1].error, "came back changed"));
  for (auto const& outcome : outcomes) CHECK(!outcome.error.empty());
}

TEST_CASE("the laws notice a backend that flips bits") {
  FaultPlan plan;
  plan.corrupt = 0.5;
  std::vector<laws::Report> reports(2);
  threads::run(2, [&](auto& plain) {
    auto comm = decorated<FaultInjector>(plain, plan);
    laws::movement<std::int32_t>(comm, reports[static_cast<std::size_t>(comm.rank())]);
  });
  CHECK(reports[0].failures + reports[1].failures > 20);
}
