// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a law on the ranks that mpiexec started; reports are combined with MPI's own reduction, so that every rank sees
/// the verdict of all. Each law runs several times: on shared memory; small calls exchanged, larger ones by the
/// library's collectives and compared while they are under way; compared before they start; and not compared, all by
/// the library. The last two with a count limit of 1000, which sends small messages along the path of large counts. On
/// three and four ranks also as if they were on several nodes, of one rank each, of two, of three.

#include "backend/mpi/world.hpp"
#include "support/catch.hpp"

#include <tutti/backend/mpi.hpp>
#include <tutti/testing/laws.hpp>

#include <cstdint>
#include <exception>

namespace tutti::test {

using Ranks = Mpi;

/// The ways in which a world of so many ranks is to work.
inline List<MpiConfig> configurations(int ranks) {
  MpiConfig const apart = ranks < 3 ? MpiConfig{.node_shared = mpi::Switch::off}
                                    : MpiConfig{.node_ranks = std::int64_t{1}};  // each rank on a node of its own
  List<MpiConfig> all = {MpiConfig{.node_shared = mpi::Switch::on, .staging_bytes = std::int64_t{4096}}, apart,
                         MpiConfig{.check_level = comm::CheckLevel::full,
                                   .node_shared = mpi::Switch::off,
                                   .count_limit = std::int64_t{1000}},
                         MpiConfig{.check_level = comm::CheckLevel::off,
                                   .node_shared = mpi::Switch::off,
                                   .count_limit = std::int64_t{1000}}};
  if (ranks > 2) all.push_back(MpiConfig{.node_shared = mpi::Switch::on, .node_ranks = std::int64_t{2}});
  if (ranks > 3)
    all.push_back(MpiConfig{.check_level = comm::CheckLevel::full,
                            .node_shared = mpi::Switch::on,
                            .node_ranks = std::int64_t{3},
                            .staging_bytes = std::int64_t{4096},
                            .count_limit = std::int64_t{1000}});
  return all;
}

template <class F>
void on_ranks(F&& law) {
  laws::Report report;
  for (MpiConfig const& config : configurations(world_size())) {
    Communicator<Mpi> comm(Mpi(MPI_COMM_WORLD, config));
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
