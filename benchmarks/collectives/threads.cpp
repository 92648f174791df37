// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Compiles the collectives of `Communicator<Threads>` for every type and operator.

#include "threads.hpp"

#include "run.hpp"

namespace tutti::bench {

std::unique_ptr<Crew> make_threads_crew(int ranks, std::int64_t arena_bytes, bool private_memory) {
  return std::make_unique<ThreadsCrew>(ranks, arena_bytes, private_memory);
}

}  // namespace tutti::bench
