// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Backends by name in a program that mpiexec starts.
// Covers: <tutti/backend/any.hpp>

#include "support/catch.hpp"

#include <tutti/backend/any.hpp>

#include <type_traits>

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
