// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Messages: a ring that cannot deadlock, a receive that learns the size from the message, groups of ranks, and what a
/// mistake looks like.
///
///     ./002_messages --ranks 4

#include <tutti/comm.hpp>

#include <tutti/backend/threads.hpp>

#include <cstdio>
#include <vector>

using Ranks = tutti::Threads;

int main(int argc, char** argv) {
  return tutti::launch<Ranks>(argc, argv, [](auto& comm) {
    int const rank = comm.rank();
    int const size = comm.size();

    // Around a ring: sends and receives at once.
    auto const token = tutti::full<int>({2}, rank);
    auto const from_left = comm.send_recv(token, (rank + 1) % size, (rank + size - 1) % size);
    if (rank == 0) std::printf("rank 0 got %d from its left\n", from_left(0));

    // Rank r sends r numbers; rank 0 asks each message for its size.
    if (rank != 0) {
      comm.send(std::vector<double>(std::size_t(rank), 0.5), 0, /*tag=*/7);
    } else {
      std::int64_t numbers = 0;
      for (int i = 1; i < size; ++i) numbers += tutti::recv<double>(comm, tutti::any_source, 7).size();
      std::printf("rank 0 received %lld numbers\n", static_cast<long long>(numbers));
    }

    // Even and odd ranks by themselves.
    auto group = comm.split(rank % 2);
    int const sum = group.all_reduce(rank, tutti::sum);
    if (rank == 0) std::printf("sum of the even ranks: %d\n", sum);

    // A mistake that one rank can see alone is an error before anything is sent.
    try {
      comm.broadcast(std::vector<float>(3), /*root=*/size);
    } catch (tutti::Error const& error) {
      if (rank == 0) std::printf("%s\n", error.message().c_str());
    }
  });
}
