// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Backends by name in a program that mpiexec starts.
// Covers: <tutti/backend/any.hpp>

#include "support/catch.hpp"

#include <tutti/backend/any.hpp>

#include <mpi.h>

#include <type_traits>
#include <vector>

using namespace tutti;

TEST_CASE("under a launcher auto takes mpi, with the launcher's ranks") {
  int const announced = comm::announced_ranks().ranks;
  REQUIRE(announced > 0);
  CHECK(choose_backend("auto") == "mpi");
  int size = 0;
  int sum_of_ranks = -1;
  int const code = with_backend("auto", 0, nullptr, [&](auto& comm) {
    if constexpr (std::is_same_v<decltype(comm), Communicator<Mpi>&>) {
      size = comm.size();
      sum_of_ranks = comm.all_reduce(comm.rank(), sum);
    }
  });
  CHECK(code == 0);
  CHECK(size == announced);
  CHECK(sum_of_ranks == announced * (announced - 1) / 2);
}

TEST_CASE("a process launches on MPI several times, also after one whose ranks disagreed") {
  char** const none = nullptr;
  int said = 0;
  for (int turn = 0; turn < 3; ++turn) {
    int const code = launch<Mpi>(0, none, [&](auto& comm) {
      std::vector<float> x(comm.rank() == 1 ? 4 : 8);
      try {
        comm.all_reduce(x, sum);
      } catch (Error const& error) {
        if (test::contains(error.what(), "ranks disagree: rank 0 calls all_reduce")) ++said;
      }
      if (comm.size() == 1) ++said;
    });
    CHECK(code == 0);
  }
  CHECK(said == 3);
  CHECK(launch<Mpi>(0, none, [](auto& comm) { return comm.all_reduce(1, sum) == comm.size() ? 0 : 1; }) == 0);
  int finalised = 1;
  MPI_Finalized(&finalised);
  CHECK(finalised == 0);
}
