// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What main asks of the two sources that compile a backend's collectives, each for a minute.

#include "crew.hpp"
#include "options.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tutti::bench {

std::unique_ptr<Crew> make_threads_crew(int ranks, std::int64_t arena_bytes, bool private_memory);

/// What rank 0 of an MPI job works with.
struct Processes {
  Crew* crew = nullptr;
  int ranks = 1;
  std::int64_t arena_bytes = 0;
  bool shared_heap = false;
  std::string library;
};
/// Whether a launcher of MPI started this process.
bool launched_by_mpi();
/// Runs `master` on rank 0 while the other ranks serve its crew; its result becomes the exit code of the job.
int run_processes(int argc, char** argv, Options const& options, std::int64_t largest,
                  std::function<int(Processes const&)> master);

}  // namespace tutti::bench
