// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A collective. Every rank runs the same function with its own communicator. Mpi instead of Threads is this alias and
/// this include; then the ranks are processes that mpiexec starts.
///
///     ./001_all_reduce --ranks 4

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <cstdio>

using Ranks = tutti::Threads;

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    auto x = tutti::tensor<float>(comm, {1 << 20});  // from the heap that ranks of a node share
    x.fill(float(comm.rank()));

    comm.all_reduce(x, tutti::sum);  // in place: the sum over all ranks, on every rank
    if (comm.rank() == 0) std::printf("sum of ranks: %g\n", double(x(0)));

    auto rows = comm.all_gather(x.slice(0, 0, 4));  // Tensor<float, Cpu>, shape (P, 4)
    if (comm.rank() == 0) std::printf("gathered: %s\n", to_string(rows.shape()).c_str());

    auto pending = comm.all_reduce_async(std::move(x), tutti::avg);  // owns its buffer until wait
    x = pending.wait();
    if (comm.rank() == 0) std::printf("average of equal sums: %g\n", double(x(0)));

    // An operator is anything that can be called; elements are combined in rank order.
    int const smallest_even = comm.all_reduce(2 * comm.rank() + 2, [](int a, int b) { return a < b ? a : b; });
    if (comm.rank() == 0) std::printf("smallest even number: %d\n", smallest_even);
  });
}
