// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of split, and of communicators that have a common parent.

#include <tutti/testing/laws/report.hpp>

#include <array>
#include <cstdint>

namespace tutti::laws {

/// split: ranks ordered by key, groups independent of each other and of the parent, nested, alive after the parent's
/// next uses.
template <class Comm>
void groups(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto parity = comm.split(rank % 2);
  int const expected_size = rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2;
  report.expect(parity.size() == expected_size && parity.rank() == rank / 2,
                "split by parity keeps the order of ranks");
  auto reversed = comm.split(0, -rank);
  report.expect(reversed.size() == ranks && reversed.rank() == ranks - 1 - rank, "split orders by key");
  auto pending = parity.all_reduce_async(full<int>(Shape{2000}, rank), sum);
  report.expect(reversed.broadcast(rank, 0) == ranks - 1, "the reversed group's rank 0 is the last");
  report.expect(comm.all_reduce(1, sum) == ranks, "the parent works while a group has operations in flight");
  int exact = 0;
  for (int r = rank % 2; r < ranks; r += 2) exact += r;
  report.expect(pending.wait()(1999) == exact, "a group reduces its own ranks");
  auto alone = reversed.split(reversed.rank());
  report.expect(
      alone.size() == 1 && alone.all_reduce(41, sum) == 41 && alone.all_gather(std::array<int, 2>{1, 2}).size() == 2,
      "a group of one");
  std::array<int, 1> const seven{7};
  auto sent = comm.send_async(seven, rank, 2);
  report.expect(!reversed.try_probe().has_value(), "messages stay within their communicator");
  std::array<int, 1> note{};
  comm.recv(note, rank, 2);
  sent.wait();
  report.expect(note[0] == 7, "message to oneself");
  {
    auto temporary = comm.split(rank / 2);
    report.expect(temporary.all_reduce(1, sum) == temporary.size(), "a group for a while");
  }
  comm.barrier();
}

/// What is in flight on one communicator moves on while the rank waits on another.
template <class Comm>
void relatives(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  auto other = comm.duplicate();
  for (std::int64_t const n : {1, 100'000}) {
    auto x = filled<float>(n, rank);
    auto pending = comm.all_reduce_async(x, sum);
    if (rank % 2 == 0) {  // the others cannot reach the barrier before these have done their share
      other.barrier();
      pending.wait();
    } else {
      pending.wait();
      other.barrier();
    }
    expect_elements<float>(report, x, n, title<float>("all_reduce during another's barrier", n, ranks),
                           [&](std::int64_t i) {
                             float total = 0;
                             for (int r = 0; r < ranks; ++r) total += element<float>(r, i);
                             return total;
                           });
    auto const sent = filled<double>(n, rank, 1);
    Tensor<double> received(Shape{n});
    if (rank == 0) {
      auto receive = ranks > 1 ? comm.recv_async(received, 1, 5) : comm.recv_async(received, 0, 5);
      if (ranks == 1) comm.send(sent, 0, 5);
      other.barrier();
      receive.wait();
      expect_elements<double>(report, received, n, "a message during another's barrier",
                              [&](std::int64_t i) { return element<double>(ranks > 1 ? 1 : 0, i, 1); });
    } else {
      if (rank == 1) comm.send(sent, 0, 5);
      other.barrier();
    }
  }
}

}  // namespace tutti::laws
