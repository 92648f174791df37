// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// `main` of the test programs that run under mpiexec. Every rank runs every test case; a failure on one rank is a
/// failure of all. The launcher marks each line with its rank.

#define CATCH_CONFIG_RUNNER
#include "support/session.hpp"

#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  auto options = tutti::test::read_options(argc, argv);
  if (options.ranks != 0 && options.ranks != ranks) {
    std::fprintf(stderr,
                 "world size is %d, the test asked for %d: mpiexec and the MPI library are of different families\n",
                 ranks, options.ranks);
    std::fflush(nullptr);
    std::_Exit(1);  // each process may be a world of its own: there is nobody to agree with
  }
  if (rank == 0) std::printf("ranks: %d\n", ranks);
  int mine = tutti::test::run_session(options, rank, ranks);
  std::fflush(nullptr);

  // A rank that failed may have left the others inside a collective; the watchdog ends those. Here all are back.
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  int worst = 0;
  mine = mine == 0 ? 0 : 1;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, all);
  if (worst != 0 && mine != 0) std::fprintf(stderr, "rank %d of %d failed\n", rank, ranks);
  std::fflush(nullptr);
  MPI_Comm_free(&all);
  MPI_Finalize();
  return worst;
}
