// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Sorts numbers that are spread over the ranks: every rank sorts its own and gives samples of them; from all samples
/// come the bounds between ranks; numbers go to the rank whose range they are in, which sorts what it got.
///
///     ./013_sample_sort --ranks 4     or with Mpi: mpiexec -n 4 ./013_sample_sort_mpi

#include <tutti/comm.hpp>

#include <tutti/backend/any.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#if TUTTI_WITH_MPI
using Ranks = tutti::Mpi;
#else
using Ranks = tutti::Threads;
#endif

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    int const total = 120000, ranks = comm.size();
    int const first = total * comm.rank() / ranks, count = total * (comm.rank() + 1) / ranks - first;
    tutti::Tensor<std::uint32_t> mine({count}), samples({ranks});  // the same numbers together for any number of ranks
    for (int i = 0; i < count; ++i) mine(i) = (first + i) * 2654435761u ^ 0x5bd1e995u;
    std::sort(mine.begin(), mine.end());

    for (int i = 0; i < ranks; ++i) samples(i) = mine(i * count / ranks);
    auto all = comm.all_gather(samples);  // (ranks, ranks)
    std::sort(all.begin(), all.end());

    std::vector<std::int64_t> counts;  // of what goes to each rank: what is below its upper bound, and not taken yet
    auto from = mine.begin();
    for (int r = 0; r < ranks; ++r) {
      auto const to = r + 1 == ranks ? mine.end() : std::lower_bound(from, mine.end(), all.begin()[(r + 1) * ranks]);
      counts.push_back(to - from);
      from = to;
    }
    auto received = comm.all_to_all_v(mine, counts);  // what comes from each rank, one after another
    auto& sorted = received.values();
    std::sort(sorted.begin(), sorted.end());

    // Where this rank's numbers stand among all, and what stands at three places.
    std::int64_t const begin = comm.exscan_value(sorted.size(), tutti::sum) * (comm.rank() != 0);
    for (int const place : {0, total / 2, total - 1}) {
      bool const here = place >= begin && place < begin + sorted.size();
      std::uint32_t number = here ? sorted(place - begin) : 0;
      comm.reduce(number, tutti::max);
      if (comm.rank() == 0) std::printf("number %d of %d: %u\n", place, total, number);
    }
    int ordered = std::is_sorted(sorted.begin(), sorted.end());
    comm.reduce(ordered, tutti::min);
    if (comm.rank() == 0) std::printf("%s\n", ordered ? "sorted" : "not sorted");
  });
}
