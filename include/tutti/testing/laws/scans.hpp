// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of scan and exscan.

#include <tutti/testing/laws/report.hpp>

namespace tutti::laws {

/// scan and exscan with one operator against the oracle, in every form; the last rank's scan is the all_reduce, and
/// exscan is the scan of the rank before, bit for bit.
template <Element T, class Comm, class Op>
void scan(Comm& comm, Report& report, Op const& op) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) {
      return title<T>(operation, n, ranks) + " with " + std::string(name(comm::operator_kind<Op>()));
    };
    auto const mine = filled<T>(n, rank);
    auto const given = mine.clone();
    auto const through = repeated_by<T>(n, [&](std::int64_t i) { return reduced<T>(op, rank + 1, i); });
    auto const below = repeated_by<T>(n, [&](std::int64_t i) { return rank == 0 ? T{} : reduced<T>(op, rank, i); });
    T const* const inclusive = through.data();
    T const* const exclusive = below.data();

    auto x = mine.clone();
    comm.scan(x, op);
    expect_elements<T>(report, x, n, called("scan in place"), inclusive);
    Tensor<T> out = zeros<T>(Shape{n});
    comm.scan(mine, out, op);
    expect_elements<T>(report, out, n, called("scan"), inclusive);
    expect_elements<T>(report, mine, n, called("scan leaves its input alone"), given.data());
    auto const scanned = comm.scan_async(mine.clone(), op).wait();
    expect_elements<T>(report, scanned, n, called("scan_async in place"), inclusive);
    comm.scan_async(mine, out, op).wait();
    expect_elements<T>(report, out, n, called("scan_async"), inclusive);
    comm.broadcast(out, ranks - 1);
    auto all = mine.clone();
    comm.all_reduce(all, op);
    expect_elements<T>(report, out, n, called("scan of the last rank, against all_reduce"), all.data());

    x = mine.clone();
    comm.exscan(x, op);
    if (rank == 0) expect_elements<T>(report, x, n, called("exscan in place leaves rank 0 alone"), given.data());
    else expect_elements<T>(report, x, n, called("exscan in place"), exclusive);
    out.fill(T{});
    comm.exscan(mine, out, op);
    expect_elements<T>(report, out, n, called("exscan"), exclusive);
    out = comm.exscan_async(mine, zeros<T>(Shape{n}), op).wait();
    expect_elements<T>(report, out, n, called("exscan_async"), exclusive);
    Tensor<T> before = zeros<T>(Shape{n});
    auto sent = comm.send_async(scanned, (rank + 1) % ranks, 1);
    comm.recv(before, (rank + ranks - 1) % ranks, 1);
    sent.wait();
    if (rank != 0)
      expect_elements<T>(report, out, n, called("exscan, against the scan of the rank before"), before.data());
  }
}

template <Element T, class Comm>
void scans(Comm& comm, Report& report) {
  if constexpr (comm::reducible<T, Sum>()) scan<T>(comm, report, sum);
  if constexpr (comm::reducible<T, Max>()) scan<T>(comm, report, max);
  if constexpr (comm::reducible<T, Avg>()) scan<T>(comm, report, avg);
  if constexpr (comm::reducible<T, LogicalOr>()) scan<T>(comm, report, logical_or);
}

/// Numbers, and a callable that is not commutative.
template <class Comm>
void scan_forms(Comm& comm, Report& report) {
  int const rank = comm.rank();
  report.expect(comm.scan(rank + 1, sum) == (rank + 1) * (rank + 2) / 2, "scan of a number");
  report.expect(comm.exscan(rank + 1, sum) == (rank == 0 ? 1 : rank * (rank + 1) / 2), "exscan of a number");
  int upto = rank + 1, before = rank + 1;
  report.expect(comm.scan_value(upto, sum) == (rank + 1) * (rank + 2) / 2 && upto == rank + 1 &&
                    comm.exscan_value(before, sum) == (rank == 0 ? 1 : rank * (rank + 1) / 2) && before == rank + 1,
                "scan_value and exscan_value leave a variable as it is");
  comm.scan(upto, sum);
  comm.exscan(before, sum);
  report.expect(upto == (rank + 1) * (rank + 2) / 2 && before == (rank == 0 ? 1 : rank * (rank + 1) / 2),
                "scan and exscan change a variable in place");
  std::int64_t digits = 1;
  for (int r = 1; r <= rank; ++r) digits = digits * 10 + r + 1;
  std::int64_t ten = 10;  // no constant, so that it is captured
  report.expect(
      comm.scan(std::int64_t{rank + 1}, [&ten](std::int64_t a, std::int64_t b) { return a * ten + b; }) == digits,
      "scan with a capturing callable, in rank order");
  Tensor<bfloat16> x(Shape{5});
  x.fill(bfloat16(rank == 0 ? 256.0f : 1.0f));
  comm.scan(x, sum);
  report.expect(x(4) == bfloat16(256.0f + static_cast<float>(rank)), "scan of bfloat16 rounds once");
  Tensor<float> table(Shape{4, 6});
  table.fill(1.0f);
  comm.scan(table.slice(1, 2, 4), sum);
  report.expect(table(3, 2) == static_cast<float>(rank + 1) && table(3, 1) == 1.0f && table(0, 4) == 1.0f,
                "scan of columns touches them alone");
}

}  // namespace tutti::laws
