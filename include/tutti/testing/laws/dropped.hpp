// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Laws of receives into borrowed memory whose requests are dropped.

#include <tutti/testing/laws/report.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::laws {

/// The buffer is the caller's again when the request is gone, and a message that comes later goes to the next receive.
template <class Comm>
void dropped_receives(Comm& comm, Report& report) {
  int const rank = comm.rank(), ranks = comm.size();
  int const next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  for (std::int64_t const n : {1, 100, 50'000}) {
    std::string const of = " of " + std::to_string(n) + " elements";
    std::vector<double> const sent(static_cast<std::size_t>(n), rank + 1.0);
    std::vector<double> const expected(sent.size(), last + 1.0), before(sent.size(), -1.0);
    std::vector<double> lent = before, received(sent.size()), strided(2 * sent.size(), -1.0);
    TensorView<double> const with_gaps = TensorView<double>(strided.data(), Shape{n, 2}).slice(1, 0, 1);
    {
      auto dropped = comm.recv_async(lent, last, 4);
      auto packed = comm.recv_async(with_gaps, last, 4);
      static_cast<void>(dropped.test());
      auto group = comm.group();
      group.recv(lent, last, 4);
    }
    comm.barrier();  // nobody has sent before
    auto sending = comm.send_async(sent, next, 4);
    comm.recv(received, last, 4);
    sending.wait();
    comm.barrier();
    report.expect(received == expected, "the next receive gets the message" + of);
    report.expect(lent == before, "a dropped receive leaves the caller's buffer alone" + of);
    report.expect(strided == std::vector<double>(strided.size(), -1.0), "and a view with gaps" + of);

    auto again = comm.send_async(sent, next, 5);
    static_cast<void>(comm.probe(last, 5));
    { auto dropped = comm.recv_async(lent, last, 5); }
    again.wait();
    comm.barrier();
    report.expect(lent == expected, "one whose message has come is complete when it is dropped" + of);

    if (ranks == 1) continue;
    lent = before;
    { auto exchange = comm.send_recv_async(sent, rank, lent, next, 6); }  // the message to itself is still sent
    comm.recv(received, rank, 6);
    comm.complete_dropped();
    report.expect(received == sent && lent == before, "a dropped exchange sends, and does not receive later" + of);
    comm.barrier();  // a rank that has left would fail the others' exchanges
  }
}

}  // namespace tutti::laws
