// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Fault schedules on threads: each ends on every rank, in success or in an error that says why; what is handed out is
/// right unless something was corrupted.
// Covers: <tutti/comm/fault_injector.hpp>
// Covers: <tutti/comm/fault_plan.hpp>

#include "comm/fault_schedule.hpp"
#include "comm/messages_only.hpp"
#include "support/catch.hpp"

#include <tutti/exec/wait.hpp>

using namespace tutti;

namespace {

struct Tally {
  int successes = 0;
  int errors = 0;
  int wrong = 0;
  std::array<int, 5> faults{};
};

/// The schedule of one seed. Half of the programs let their error pass to the run, which tells everybody; in the other
/// half a rank that fails catches it and leaves quietly.
template <class MakeBackend>
std::string run_seed(std::uint64_t seed, Tally& tally, MakeBackend&& make) {
  int const ranks = static_cast<int>(seed / 6 % 3) + 2;
  FaultPlan const plan = test::schedule(seed);
  bool const passes = seed / 2 % 2 == 0;
  bool const late = test::loses(plan, ranks);  // the deadline ends it, which a loaded machine may miss by itself
  bool const prompt = !late && passes && plan.corrupt == 0;
  double const deadline = late ? 0.04 : prompt ? 60 : 1;
  std::vector<test::Outcome> outcomes(static_cast<std::size_t>(ranks));
  List<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  std::int64_t const begin = exec::now_ns();
  try {
    threads::run(ranks, [&](auto& outer) {
      using Injector = FaultInjector<decltype(make(outer.backend().split(0, 0, members)))>;
      Communicator<Injector> comm(Injector(make(outer.backend().split(0, outer.rank(), members)), plan), {deadline});
      auto& outcome = outcomes[static_cast<std::size_t>(outer.rank())];
      test::Buffers buffers;
      outcome = test::run_schedule(comm, seed, buffers);
      if (!outcome.error.empty() && passes) throw Error(ErrorKind::communication, "test", outcome.error);
    });
  } catch (Error const&) {
  }
  std::string text = test::judge(outcomes, late);
  double const seconds = static_cast<double>(exec::now_ns() - begin) * 1e-9;
  if (seconds > (prompt ? 30 : 8)) text += "took " + std::to_string(seconds) + " s\n";
  for (auto const& outcome : outcomes) {
    ++(outcome.error.empty() ? tally.successes : tally.errors);
    tally.wrong += !outcome.wrong.empty();
    for (auto const& fault : outcome.injected) ++tally.faults[static_cast<std::size_t>(fault.fault)];
  }
  return text;
}

template <class MakeBackend>
void run_seeds(std::uint64_t first, std::uint64_t count, MakeBackend&& make) {
  Tally tally;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::string const text = run_seed(seed, tally, make);
    INFO("seed " << seed << "\n" << text);
    CHECK(text.empty());
  }
  INFO(tally.successes << " successes, " << tally.errors << " errors, " << tally.wrong << " corrupted results");
  // The schedules do what they are for.
  CHECK(tally.successes > static_cast<int>(count) / 2);
  CHECK(tally.errors > static_cast<int>(count) / 4);
  CHECK(tally.wrong > static_cast<int>(count) / 20);
  for (Fault const fault : {Fault::delay, Fault::drop, Fault::kill, Fault::corrupt}) {
    INFO(name(fault));
    CHECK(tally.faults[static_cast<std::size_t>(fault)] > static_cast<int>(count) / 20);
  }
}

}  // namespace

TEST_CASE("900 fault schedules on Threads end on every rank, and never wrong without an error") {
  run_seeds(0, 900, [](Threads inner) { return inner; });
}

TEST_CASE("300 fault schedules on a backend of messages end on every rank, and never wrong without an error") {
  run_seeds(10'000, 300, [](Threads inner) { return test::MessagesOnly(std::move(inner)); });
}
