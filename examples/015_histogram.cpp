// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A histogram that is spread over the ranks: each offers its part of the bins, and adds to everybody's what it counts.
///
///     ./015_histogram --ranks 4

#include <tutti/comm.hpp>
#include <tutti/comm/window.hpp>

#include <tutti/backend/threads.hpp>

#include <cstdint>
#include <cstdio>

using Ranks = tutti::Threads;

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    constexpr int bins_in_all = 24;
    int const bins = bins_in_all / comm.size();
    std::uint64_t random = std::uint64_t(comm.rank()) + 1;

    auto histogram = tutti::window<std::int64_t>(comm, bins);
    for (int i = 0; i < 5000; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      int const value = int((random >> 33) % (bins_in_all / 2) + (random >> 50) % (bins_in_all / 2 + 1));
      histogram.accumulate(1, value / bins, value % bins);  // of the rank that offers this bin
    }
    histogram.fence();

    auto const all = comm.all_gather(histogram.part());
    if (comm.rank() == 0)
      for (int bin = 0; bin < bins_in_all; ++bin) std::printf("%2d %d\n", bin, int(all.elements()[std::size_t(bin)]));
  });
}
