// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Operations in flight own their buffers, and an operator is anything that can be called.
///
///     ./003_operators --ranks 4

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <cstdio>

using Ranks = tutti::Threads;

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    auto x = tutti::full<float>({1 << 20}, float(comm.rank()));
    auto pending = comm.all_reduce_async(std::move(x), tutti::avg);  // owns its buffer until wait
    x = pending.wait();
    if (comm.rank() == 0) std::printf("average: %g\n", double(x(0)));

    // An operator is anything that can be called; elements are combined in rank order.
    int const smallest_even = comm.all_reduce(2 * comm.rank() + 2, [](int a, int b) { return a < b ? a : b; });
    if (comm.rank() == 0) std::printf("smallest even number: %d\n", smallest_even);
  });
}
