// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a law on the ranks that mpiexec started; reports are combined with MPI's own reduction, so that every rank sees
/// the verdict of all. TUTTI_TEST_COUNT_LIMIT lowers the count limit, to test the path of large counts with small ones.

#include "laws/collectives.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>

#include <cstdlib>

namespace tutti::test {

using Ranks = Mpi;

inline MpiOptions mpi_options() {
  MpiOptions options;
  if (char const* const limit = std::getenv("TUTTI_TEST_COUNT_LIMIT")) options.count_limit = std::atoll(limit);
  return options;
}

template <class F>
void on_ranks(F&& law) {
  laws::Report report;
  {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, mpi_options()));
    try {
      law(comm, report);
    } catch (std::exception const& error) {  // the others may wait for this rank: the watchdog ends them
      report.expect(false, error.what());
    }
  }
  int total = 0;
  MPI_Allreduce(&report.failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  INFO("this rank: " << report.text);
  CHECK(report.checks > 0);
  CHECK(report.failures == 0);
  REQUIRE(total == 0);
}

}  // namespace tutti::test
