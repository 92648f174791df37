// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Every operation of a communicator one after the other, on private memory of given size, for tests that look at what
/// each of them moves.

#include <tutti/comm.hpp>

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

/// A size for each rank, of `n` and their place; and their sum.
struct Uneven {
  std::vector<std::int64_t> counts;
  std::int64_t all = 0;
  Uneven(int ranks, std::int64_t n) {
    for (int r = 0; r < ranks; ++r) {
      counts.push_back(n + r);
      all += n + r;
    }
  }
};

/// Calls see(name, f) for every operation, where f() does it on this rank and `name` is that of its statistics, or of
/// one of them; on all ranks in the same order. `n` elements are a block.
template <class Comm, class See>
void for_each_operation(Comm& comm, std::int64_t n, See&& see) {
  int const ranks = comm.size(), rank = comm.rank(), last = ranks - 1;
  auto const some = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), 1.0f); };
  auto const block = [&] { return some(n); };
  Uneven const uneven(ranks, n);
  auto const own = uneven.counts[static_cast<std::size_t>(rank)];
  std::vector<float> x = block(), y = block(), blocks = some(n * ranks), others = some(n * ranks);
  std::vector<float> ragged = some(uneven.all), piece = some(own);
  std::vector<std::int64_t> const even(static_cast<std::size_t>(ranks), n);

  see("barrier", [&] { comm.barrier(); });
  see("broadcast", [&] { comm.broadcast(x, last); });
  see("reduce", [&] { comm.reduce(x, sum, last); });
  see("reduce", [&] { comm.reduce(x, y, max, 0); });
  see("all_reduce", [&] { comm.all_reduce(x, sum); });
  see("all_reduce", [&] { comm.all_reduce(x, y, avg); });
  see("all_reduce", [&] { comm.all_reduce(x, [](float a, float b) { return a + b; }); });
  see("all_reduce", [&] { comm.all_reduce_async(y, sum).wait(); });
  see("gather", [&] { comm.gather(x, blocks, last); });
  see("all_gather", [&] { comm.all_gather(x, blocks); });
  see("all_gather", [&] {  // in place
    comm.all_gather(std::span<float const>(blocks.data() + n * rank, static_cast<std::size_t>(n)), blocks);
  });
  see("scatter", [&] { comm.scatter(blocks, x, last); });
  see("reduce_scatter", [&] { comm.reduce_scatter(blocks, x, sum); });
  see("all_to_all", [&] { comm.all_to_all(blocks, others); });
  see("all_to_all", [&] { comm.all_to_all(blocks, blocks); });
  see("scan", [&] { comm.scan(x, sum); });
  see("exscan", [&] { comm.exscan(x, y, sum); });
  see("gather_v", [&] { comm.gather_v(piece, ragged, uneven.counts, last); });
  see("all_gather_v", [&] { comm.all_gather_v(piece, ragged, uneven.counts); });
  see("scatter_v", [&] { comm.scatter_v(ragged, piece, uneven.counts, last); });
  see("reduce_scatter_v", [&] { comm.reduce_scatter_v(ragged, piece, uneven.counts, sum); });
  see("all_to_all_v", [&] { comm.all_to_all_v(blocks, others, even, even); });
  see("all_reduce_contributions", [&] {
    Tensor<float, Cpu> contributions(Shape{3, n});
    contributions.fill(1.0f);
    comm.all_reduce_contributions(contributions, y, sum);
  });
  std::vector<bfloat16> halves(static_cast<std::size_t>(n), bfloat16(1.0f));
  see("all_reduce", [&] { comm.all_reduce(halves, sum); });
  std::vector<std::complex<double>> numbers(static_cast<std::size_t>(n));
  see("reduce_scatter", [&] {
    std::vector<std::complex<double>> all(static_cast<std::size_t>(n * ranks));
    comm.reduce_scatter(all, numbers, prod);
  });
  see("all_reduce", [&] {
    auto plan = comm.all_reduce_plan(x, sum);
    plan.start();
    plan.wait();
  });

  int const next = (rank + 1) % ranks, before = (rank + last) % ranks;
  see("send_recv", [&] { comm.send_recv(x, next, y, before, 3); });
  see("recv", [&] {
    auto sending = comm.send_async(x, next, 4);
    static_cast<void>(comm.probe(before, 4));
    static_cast<void>(comm.template recv<float>(before, 4));
    sending.wait();
  });
  see("match", [&] {
    auto sending = comm.send_async(x, next, 5);
    comm.recv(comm.match(before, 5), y);
    sending.wait();
  });
  see("send", [&] {
    auto group = comm.group();
    group.send(x, next, 6);
    group.recv(y, before, 6);
    group.wait();
  });
}

}  // namespace tutti::test
