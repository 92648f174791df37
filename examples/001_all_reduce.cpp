// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A collective. Every rank runs the same function with its own communicator.
///
///     ./001_all_reduce --ranks 4

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <cstdio>

using Ranks = tutti::Threads;  // or tutti::Mpi, of <tutti/backend/mpi.hpp>: then mpiexec starts the ranks

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    auto x = tutti::tensor<float>(comm, {1 << 20});  // from the heap that ranks of a node share
    x.fill(float(comm.rank()));

    comm.all_reduce(x, tutti::sum);  // in place: the sum over all ranks, on every rank
    if (comm.rank() == 0) std::printf("sum of ranks: %g\n", double(x(0)));

    auto rows = comm.all_gather(x.slice(0, 0, 4));  // Tensor<float, Cpu>, shape (P, 4)
    if (comm.rank() == 0) std::printf("gathered: %s\n", to_string(rows.shape()).c_str());
  });
}
