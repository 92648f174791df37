// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose gradients are compressed, on ranks that are processes.
// Covers: <tutti/train/train_step.hpp>

#include "support/catch.hpp"
#include "train/compressed.hpp"

#include <tutti/backend/mpi.hpp>

#include <string>

using namespace tutti;

TEST_CASE("training with compressed gradients is the same and resumes bitwise between processes too") {
  Communicator<Mpi> communicator(Mpi(MPI_COMM_WORLD, {}));
  for (char const* name : {"bf16", "int8", "topk:0.1", "powersgd:4"})
    for (parallel::Replicas replicas :
         {parallel::Replicas::per_node, parallel::Replicas::per_rank, parallel::Replicas::sharded}) {
      test::CompressedRun const run =
          test::train_compressed(communicator, parallel::compressor_of(name), replicas, 3);
      bool const good = communicator.all_reduce(run.wrong.empty() ? 0 : 1, sum) == 0;
      INFO(name << ": " << run.wrong);
      REQUIRE(good);
      CHECK(run.losses.back() < run.losses[0] - 0.3f);
    }
}
