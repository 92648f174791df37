// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// examples/013_sample_sort.cpp in raw MPI.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto const ranks = static_cast<std::size_t>(size);
  std::int64_t const total = 120000;
  std::vector<std::uint32_t> mine;
  for (std::int64_t i = total * rank / size; i < total * (rank + 1) / size; ++i)
    mine.push_back(static_cast<std::uint32_t>(i) * 2654435761u ^ 0x5bd1e995u);
  std::sort(mine.begin(), mine.end());
  std::vector<std::uint32_t> samples, all(ranks * ranks);
  for (std::size_t i = 0; i < ranks; ++i) samples.push_back(mine[i * mine.size() / ranks]);
  MPI_Allgather(samples.data(), size, MPI_UINT32_T, all.data(), size, MPI_UINT32_T, MPI_COMM_WORLD);
  std::sort(all.begin(), all.end());
  std::vector<int> counts(ranks), from(ranks, 0), received(ranks), to(ranks, 0);
  auto begin = mine.begin();
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const end = r + 1 == ranks ? mine.end() : std::lower_bound(begin, mine.end(), all[(r + 1) * ranks]);
    counts[r] = static_cast<int>(end - begin);
    begin = end;
  }
  MPI_Alltoall(counts.data(), 1, MPI_INT, received.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (std::size_t r = 1; r < ranks; ++r) {
    from[r] = from[r - 1] + counts[r - 1];
    to[r] = to[r - 1] + received[r - 1];
  }
  std::vector<std::uint32_t> sorted(static_cast<std::size_t>(to.back() + received.back()));
  MPI_Alltoallv(mine.data(), counts.data(), from.data(), MPI_UINT32_T, sorted.data(), received.data(), to.data(),
                MPI_UINT32_T, MPI_COMM_WORLD);
  std::sort(sorted.begin(), sorted.end());
  auto const count = static_cast<std::int64_t>(sorted.size());
  std::int64_t first = 0;
  MPI_Exscan(&count, &first, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) first = 0;
  for (std::int64_t const place : {std::int64_t{0}, total / 2, total - 1}) {
    bool const here = place >= first && place < first + count;
    // signed, because MPICH 4.0.2 takes the greatest of unsigned numbers as if they were
    std::int64_t const number = here ? sorted[static_cast<std::size_t>(place - first)] : 0;
    std::int64_t result = 0;
    MPI_Reduce(&number, &result, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
      std::printf("number %d of %d: %u\n", static_cast<int>(place), static_cast<int>(total),
                  static_cast<unsigned>(result));
  }
  int const ordered = std::is_sorted(sorted.begin(), sorted.end());
  int result = 0;
  MPI_Reduce(&ordered, &result, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%s\n", result ? "sorted" : "not sorted");
  MPI_Finalize();
}
