// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A crew of MPI processes. Rank 0 runs commands; the others serve. While nothing is asked of them they look for a
/// command twice in a millisecond and sleep, where a blocking call of MPI would spin.

#include "crew.hpp"
#include "raw_mpi.hpp"

#include <tutti/exec/processors.hpp>

#include <sched.h>
#include <utility>

namespace tutti::bench {

class ProcessTeam {
 public:
  ProcessTeam() {
    must(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    MPI_Comm_rank(control_, &rank_);
    MPI_Comm_size(control_, &size_);
    yields_ = size_ > exec::available_processors();
  }
  ProcessTeam(ProcessTeam const&) = delete;
  ProcessTeam& operator=(ProcessTeam const&) = delete;
  ~ProcessTeam() { MPI_Comm_free(&control_); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void sync() {
    if (!yields_) return must(MPI_Barrier(control_), "MPI_Barrier");
    MPI_Request request{};
    must(MPI_Ibarrier(control_, &request), "MPI_Ibarrier");
    for (int done = 0; done == 0;) {
      must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) ::sched_yield();
    }
  }
  double max(double value) {
    must(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, control_), "MPI_Allreduce");
    return value;
  }
  std::int64_t sum(std::int64_t value) {
    must(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, control_), "MPI_Allreduce");
    return value;
  }
  /// On rank 0, each element becomes the largest of all ranks'.
  void slowest(std::vector<double>& values) {
    must(MPI_Reduce(rank_ == 0 ? MPI_IN_PLACE : values.data(), values.data(), static_cast<int>(values.size()),
                    MPI_DOUBLE, MPI_MAX, 0, control_),
         "MPI_Reduce");
  }
  /// Rank 0's command, on every rank.
  void pass(Command& command) {
    MPI_Request request{};
    must(MPI_Ibcast(&command, static_cast<int>(sizeof(Command)), MPI_BYTE, 0, control_, &request), "MPI_Ibcast");
    for (int done = 0; done == 0;) {
      must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0 && rank_ != 0) sleep_us(500);
    }
  }

 private:
  MPI_Comm control_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool yields_ = false;
};

class ProcessesCrew : public Crew {
 public:
  ProcessesCrew(ProcessTeam& team, Arena arena, Find find) : team_(team), arena_(arena), find_(std::move(find)) {}
  Result run(Command const& command) override {
    Command passed = command;
    team_.pass(passed);
    return execute(team_, 0, arena_, find_, passed);
  }
  /// Every other rank, until rank 0 says stop.
  void serve() {
    for (Command command;;) {
      team_.pass(command);
      if (command.action == Action::stop) return;
      static_cast<void>(execute(team_, team_.rank(), arena_, find_, command));
    }
  }
  /// Rank 0, at the end.
  void stop() {
    Command command;
    team_.pass(command);
  }

 private:
  ProcessTeam& team_;
  Arena arena_;
  Find find_;
};

}  // namespace tutti::bench
