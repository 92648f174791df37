// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A program of somebody else's, over MPI.

#include <tutti/backend/mpi.hpp>
#include <tutti/comm.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  return tutti::launch<tutti::Mpi>(argc, argv, [](auto& comm) {
    int const ranks = comm.all_reduce(1, tutti::sum);
    if (comm.rank() == 0) std::printf("%d of %d ranks\n", ranks, comm.size());
    return ranks == comm.size() ? 0 : 1;
  });
}
