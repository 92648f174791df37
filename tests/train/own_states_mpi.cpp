// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// States that a loss updates, on ranks that are processes.
// Covers: <tutti/train/train_step.hpp>

#include "support/catch.hpp"
#include "train/own_states.hpp"

#include <tutti/backend/mpi.hpp>

#include <string>

using namespace tutti;

TEST_CASE("states of a loss are replicated, averaged or each rank's own between processes too") {
  Communicator<Mpi> communicator(Mpi(MPI_COMM_WORLD, {}));
  for (parallel::Replicas replicas : {parallel::Replicas::per_node, parallel::Replicas::per_rank})
    for (std::int64_t micro_steps : {1, 2}) {
      std::string const wrong = test::states_over_ranks(communicator, replicas, micro_steps);
      bool const good = communicator.all_reduce(wrong.empty() ? 0 : 1, sum) == 0;
      INFO(wrong);
      REQUIRE(good);
    }
}
