// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many processors the ranks of a node have together. Launchers bind each rank to processors of its own, so one
/// rank's mask says nothing about the others: counting it alone would find every bound job crowded.

#include <tutti/backend/mpi/error.hpp>
#include <tutti/exec/processors.hpp>

#include <mpi.h>
#include <sched.h>

namespace tutti::mpi {

/// Processors in the affinity masks of all ranks of `node`, at most this rank's control group's quota, at least 1.
/// Ranks    all of `node`, the ranks of one communicator on one node.
inline int node_processors(MPI_Comm node) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof(mask), &mask);
  check(MPI_Allreduce(MPI_IN_PLACE, &mask, static_cast<int>(sizeof(mask)), MPI_BYTE, MPI_BOR, node), "MPI_Allreduce");
  int const together = CPU_COUNT(&mask);
  int const quota = exec::detail::cgroup_quota();
  int const usable = quota > 0 && quota < together ? quota : together;
  return usable < 1 ? exec::available_processors() : usable;
}

}  // namespace tutti::mpi
