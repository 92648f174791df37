// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Fault schedules on processes: many plans in one job, each on a communicator of its own, on shared memory, through
/// the library, and on two nodes. What must not happen to the job itself, a rank that is killed, is tried in one that
/// may end so.
// Covers: <tutti/comm/fault_injector.hpp>

#include "comm/fault_schedule.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>

#include <cstdio>

using namespace tutti;

namespace {

/// A program goes on after any error when everything is copied, or when its buffers stay, as these do.
mpi::CopyLimit const copied(1 << 30);

/// Sends every rank's outcome to rank 0, which judges.
std::string judge_together(test::Outcome const& mine, bool late) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<test::Outcome> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    test::Outcome& outcome = all[static_cast<std::size_t>(r)];
    if (r == rank) outcome = mine;
    for (std::string* text : {&outcome.wrong, &outcome.error, &outcome.foreign}) {
      int length = static_cast<int>(text->size());
      MPI_Bcast(&length, 1, MPI_INT, r, MPI_COMM_WORLD);
      text->resize(static_cast<std::size_t>(length));
      MPI_Bcast(text->data(), length, MPI_CHAR, r, MPI_COMM_WORLD);
    }
    int count = static_cast<int>(outcome.injected.size());
    MPI_Bcast(&count, 1, MPI_INT, r, MPI_COMM_WORLD);
    outcome.injected.resize(static_cast<std::size_t>(count));
    MPI_Bcast(outcome.injected.data(), count * static_cast<int>(sizeof(PlannedFault)), MPI_BYTE, r, MPI_COMM_WORLD);
  }
  return test::judge(all, late);
}

void run_seeds(std::uint64_t first, std::uint64_t count, MpiConfig const& config) {
  static test::Buffers buffers;
  int successes = 0;
  int errors = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    FaultPlan const plan = test::schedule(seed);
    test::Outcome outcome;
    bool late = false;
    {
      Communicator<Mpi> parent(Mpi(MPI_COMM_WORLD, config));
      late = test::loses(plan, parent.size());
      parent.set_deadline_seconds(late ? 0.1 : 5);
      auto comm = decorated<FaultInjector>(parent, plan);
      // Who finds its color damaged stays away from MPI_Comm_split, which has no deadline.
      outcome = test::run_schedule(comm, seed, buffers, plan.corrupt == 0);
    }
    ++(outcome.error.empty() ? successes : errors);
    std::string const text = judge_together(outcome, late);
    INFO("seed " << seed << "\n" << text);
    CHECK(text.empty());
  }
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  INFO(successes << " successes, " << errors << " errors on this rank");
  CHECK(successes > static_cast<int>(count) / 8);
  CHECK(errors > static_cast<int>(count) / 10);
}

}  // namespace

TEST_CASE("48 fault schedules on Mpi with shared memory end on every rank, and never wrong without an error") {
  run_seeds(20'000, 48, {.copy_bytes = mpi::CopyLimit(0)});
}

TEST_CASE("30 fault schedules through the MPI library end on every rank, and never wrong without an error") {
  run_seeds(30'000, 30, {.node_shared = mpi::Switch::off, .copy_bytes = copied});
}

TEST_CASE("16 fault schedules on two nodes end on every rank, and never wrong without an error") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 2) run_seeds(40'000, 16, {.node_ranks = std::int64_t{2}, .copy_bytes = copied});
  else SUCCEED("two ranks are one node");
}
