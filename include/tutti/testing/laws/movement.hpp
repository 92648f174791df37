// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of broadcast, gather, all_gather, scatter and all_to_all.

#include <tutti/testing/laws/report.hpp>

#include <cstdint>

namespace tutti::laws {

/// broadcast, gather, all_gather, scatter, all_to_all: what arrives is what was sent, for every root; blocking,
/// asynchronous, in place; scatter then gather, and all_to_all twice, are the identity.
template <Element T, class Comm>
void movement(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) { return title<T>(operation, n, ranks); };
    int const root = static_cast<int>(n % ranks);
    auto const everything = filled_by<T>(n * ranks, [&](std::int64_t i) {
      return element<T>(static_cast<int>(i / n), i % n);
    });
    T const* const gathered = everything.data();
    T const* const own = gathered + n * rank;

    auto x = filled<T>(n, rank);
    comm.broadcast(x, root);
    expect_elements<T>(report, x, n, called("broadcast"), gathered + n * root);
    x = comm.broadcast_async(filled<T>(n, rank, 1), root).wait();
    expect_elements<T>(report, x, n, called("broadcast_async"), [&](std::int64_t i) { return element<T>(root, i, 1); });

    x = filled<T>(n, rank);
    Tensor<T> all = comm.all_gather(x);
    report.expect(all.shape() == Shape{ranks, n}, called("all_gather: shape"));
    expect_elements<T>(report, all, n * ranks, called("all_gather"), gathered);
    all = comm.all_gather_async(x).wait();
    expect_elements<T>(report, all, n * ranks, called("all_gather_async"), gathered);
    all.fill(T{});
    std::copy_n(x.data(), n, all[rank].data());
    comm.all_gather(all[rank], all);
    expect_elements<T>(report, all, n * ranks, called("all_gather in place"), gathered);

    Tensor<T> at_root = comm.gather(x, root);
    report.expect(at_root.shape() == Shape{rank == root ? ranks : 0, n}, called("gather: shape"));
    if (rank == root) expect_elements<T>(report, at_root, n * ranks, called("gather"), gathered);
    at_root = comm.gather_async(x.clone(), root).wait();
    if (rank == root) {
      expect_elements<T>(report, at_root, n * ranks, called("gather_async"), gathered);
      at_root.fill(T{});
      std::copy_n(x.data(), n, at_root[rank].data());
      comm.gather(at_root[rank], at_root, root);
      expect_elements<T>(report, at_root, n * ranks, called("gather in place"), gathered);
    } else {
      comm.gather(x, at_root, root);
    }

    Tensor<T> part(Shape{n});
    part.fill(T{});
    comm.scatter(at_root, part, root);
    expect_elements<T>(report, part, n, called("scatter of gather"), own);
    part.fill(T{});
    comm.scatter_async(at_root, part, root).wait();
    expect_elements<T>(report, part, n, called("scatter_async"), own);
    if (rank == root) {
      auto const before = at_root.clone();
      comm.scatter(at_root, at_root[rank], root);
      expect_elements<T>(report, at_root, n * ranks, called("scatter in place"), before.data());
    } else {
      comm.scatter(at_root, part, root);
      expect_elements<T>(report, part, n, called("scatter, root in place"), own);
    }

    auto const received = filled_by<T>(n * ranks, [&](std::int64_t i) {
      return element<T>(static_cast<int>(i / n), n * rank + i % n);
    });
    T const* const exchanged = received.data();
    auto const mine = filled<T>(n * ranks, rank);
    Tensor<T> exchange = comm.all_to_all(mine);
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all"), exchanged);
    exchange = comm.all_to_all_async(mine).wait();
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all_async"), exchanged);
    comm.all_to_all(exchange, exchange);
    expect_elements<T>(report, exchange, n * ranks, called("all_to_all twice, in place"), mine.data());
  }
}

}  // namespace tutti::laws
