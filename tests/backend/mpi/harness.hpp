// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a law on the ranks that mpiexec started; reports are combined with MPI's own reduction, so that every rank sees
/// the verdict of all. Each law runs twice: as the library is, and with a count limit of 1000, which sends small
/// messages along the path of large counts.

#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/testing/laws.hpp>

#include <cstdint>
#include <exception>

namespace tutti::test {

using Ranks = Mpi;

template <class F>
void on_ranks(F&& law) {
  laws::Report report;
  for (std::int64_t const limit : {mpi::default_count_limit, std::int64_t{1000}}) {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, {.count_limit = limit}));
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
