// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of operands of every form, of many operations in flight, and of barriers.

#include <tutti/testing/laws/report.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::laws {

/// Views with gaps, spans, vectors, arrays and single numbers are as good as tensors.
template <class Comm>
void forms(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  Tensor<float> x(Shape{6, 5});
  for (int i = 0; i < 30; ++i) x.data()[i] = static_cast<float>(i);
  comm.all_reduce(x.slice(1, 1, 3), sum);  // two columns
  for (int i = 0; i < 30; ++i) {
    bool const inside = i % 5 == 1 || i % 5 == 2;
    report.expect(x.data()[i] == static_cast<float>(inside ? i * ranks : i),
                  "all_reduce of columns touches them alone");
  }
  auto y = comm.all_gather(x.transpose());
  report.expect(y.shape() == Shape{ranks, 5, 6}, "all_gather of a transposed view: shape");
  for (int i = 0; i < 30; ++i)
    report.expect(y.data()[30 * rank + i] == x(i % 6, i / 6), "all_gather of a transposed view");
  Tensor<float> columns(Shape{4, ranks});
  columns.fill(-1.0f);
  std::vector<float> const mine(4, static_cast<float>(rank));
  comm.all_gather_async(mine, columns.transpose()).wait();
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < 4; ++i)
      report.expect(columns(i, r) == static_cast<float>(r), "all_gather_async into a transposed view");
  std::vector<std::int32_t> numbers{rank, 2 * rank};
  comm.all_reduce(numbers, max);
  report.expect(numbers[0] == ranks - 1 && numbers[1] == 2 * (ranks - 1), "all_reduce of a std::vector");
  std::array<double, 2> pair{1.0, 2.0};
  comm.all_reduce(std::span<double>(pair).subspan(1), sum);
  report.expect(pair[0] == 1.0 && pair[1] == 2.0 * ranks, "all_reduce of a std::span");
  report.expect(comm.all_reduce(rank + 1, sum) == ranks * (ranks + 1) / 2, "all_reduce of a number");
  report.expect(comm.broadcast(rank, ranks - 1) == ranks - 1, "broadcast of a number");
  double number = rank + 0.5;
  comm.broadcast(number, ranks - 1);
  report.expect(number == ranks - 0.5, "broadcast changes a variable in place");
  report.expect(comm.broadcast_value(number, 0) == number && comm.all_reduce_value(number, sum) == ranks * number &&
                    number == ranks - 0.5,
                "broadcast_value and all_reduce_value leave it as it is");
  comm.all_reduce(number, sum);
  report.expect(number == ranks * (ranks - 0.5), "all_reduce changes a variable in place");
  int reduced = rank + 1;
  comm.reduce(reduced, sum, ranks - 1);
  report.expect(reduced == (rank == ranks - 1 ? ranks * (ranks + 1) / 2 : rank + 1),
                "reduce changes the root's variable in place");
  auto const all = comm.all_gather(rank + 0.5);
  report.expect(all.shape() == Shape{ranks} && all(rank) == rank + 0.5 && all(0) == 0.5, "all_gather of a number");
  auto const some = comm.gather(rank + 0.5, ranks - 1);
  report.expect(some.size() == (rank == ranks - 1 ? ranks : 0) && (some.size() == 0 || some(ranks - 1) == ranks - 0.5),
                "gather of a number");
  report.expect(comm.all_reduce(true, logical_and) && comm.all_reduce(rank == 0, logical_or) &&
                    comm.all_reduce(rank == 0, logical_and) == (ranks == 1),
                "bool by logical operators");
  auto on_heap = tensor<float>(comm, {3});
  on_heap.fill(1.0f);
  comm.all_reduce(on_heap, sum);
  report.expect(on_heap(2) == static_cast<float>(ranks), "all_reduce on the communicator's heap");
  auto const node = comm.all_gather(std::array<std::int32_t, 3>{comm.node(), comm.local_rank(), comm.local_size()});
  int peers = 0;
  for (int r = 0; r < ranks; ++r) peers += node(r, 0) == comm.node();
  report.expect(peers == comm.local_size() && comm.local_rank() < comm.local_size() && node(0, 0) == 0,
                "node, local rank and size fit together");
}

/// Many operations in flight, finished in another order, dropped, and blocking ones between them.
template <class Comm>
void in_flight(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<Request<Tensor<float>>> pending;
  for (int k = 0; k < 40; ++k) {  // more than any ring of slots
    Tensor<float> x(Shape{k % 3 == 0 ? 5000 : 7});
    x.fill(static_cast<float>(rank + k));
    if (k % 4 == 3) pending.push_back(comm.all_gather_async(std::move(x)));
    else pending.push_back(comm.all_reduce_async(std::move(x), sum));
  }
  comm.barrier();
  for (int k = 39; k >= 0; --k) {  // backwards, and by turns with test
    auto& request = pending[static_cast<std::size_t>(k)];
    if (k % 2 == 0)
      while (!request.test()) {}
    auto const x = request.wait();
    float const expected = k % 4 == 3 ? static_cast<float>(k) : static_cast<float>(ranks * (ranks - 1) / 2 + ranks * k);
    report.expect(x.data()[0] == expected && !request.valid(), "operation " + std::to_string(k) + " of many in flight");
  }
  Tensor<bfloat16> narrow(Shape{3000});
  narrow.fill(bfloat16(1.0f));
  auto derived = comm.all_reduce_async(narrow, sum);  // derived from messages on MPI, and overtaken by others here
  auto second = comm.all_reduce_async(full<bfloat16>(Shape{3000}, bfloat16(2.0f)), sum);
  report.expect(comm.all_reduce(1, sum) == ranks, "blocking between asynchronous");
  report.expect(static_cast<float>(second.wait()(2999)) == static_cast<float>(2 * ranks), "second of two derived");
  report.expect(static_cast<float>(derived.wait()(17)) == static_cast<float>(ranks), "first of two derived");
  for (int k = 0; k < 5; ++k) {
    auto dropped = comm.all_reduce_async(full<float>(Shape{k % 2 == 0 ? 3 : 3000}, 1.0f), sum);
    static_cast<void>(dropped.test());
  }
  comm.barrier_async().wait();
  Request<void> replaced = comm.barrier_async();
  replaced = comm.barrier_async();
  replaced.wait();
}

/// barrier: nobody leaves before everybody has come. Seen through the order of messages: all notes that were sent
/// before the barrier can be received right after it.
template <class Comm>
void barriers(Comm& comm, Report& report) {
  int const ranks = comm.size();
  report.expect(ranks > 0, "there are ranks");
  for (int round = 0; round < 20; ++round) {
    for (int r = 0; r < ranks; ++r)
      if (r != comm.rank()) comm.send(std::array<int, 1>{round}, r, 5);
    comm.barrier();
    for (int r = 0; r < ranks; ++r) {
      if (r == comm.rank()) continue;
      std::array<int, 1> note{-1};
      comm.recv(note, r, 5);
      report.expect(note[0] == round, "messages before a barrier arrive in order");
    }
  }
}

}  // namespace tutti::laws
