// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of the _v collectives: blocks of different sizes, counted in rows.

#include <tutti/testing/laws/report.hpp>

#include <algorithm>

namespace tutti::laws {

/// Rows that rank r contributes, of a base size: some ranks have none.
inline std::int64_t rows_of(int r, std::int64_t n) { return r == 2 ? 0 : n + r * 3; }
inline std::vector<std::int64_t> counts_of(int ranks, std::int64_t n) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(rows_of(r, n));
  return counts;
}

/// (rows, columns) with element i of `rank` at flat position i; of rank 1 for one column.
template <Element T>
Tensor<T> rows(std::int64_t count, std::int64_t columns, int rank, int salt = 0) {
  Tensor<T> x(columns == 1 ? Shape{count} : Shape{count, columns});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data()[i] = element<T>(rank, i, salt);
  return x;
}

/// All blocks one after another, as any correct gather leaves them.
template <Element T>
Tensor<T> joined(std::vector<std::int64_t> const& counts, std::int64_t columns, int salt = 0) {
  std::int64_t total = 0;
  for (auto const count : counts) total += count;
  Tensor<T> x(columns == 1 ? Shape{total} : Shape{total, columns});
  std::int64_t at = 0;
  for (std::size_t r = 0; r < counts.size(); ++r)
    for (std::int64_t i = 0; i < counts[r] * columns; ++i) x.data()[at++] = element<T>(static_cast<int>(r), i, salt);
  return x;
}

template <Element T>
void expect_equal(Report& report, Tensor<T> const& x, Tensor<T> const& expected, std::string const& what) {
  report.expect(x.shape() == expected.shape(),
                what + ": shape " + to_string(x.shape()) + " instead of " + to_string(expected.shape()));
  expect_elements<T>(report, x, expected.size(), what, expected.data());
}

/// gather_v, all_gather_v, scatter_v: explicit and inferred counts, blocking, asynchronous, in place; scatter_v of
/// gather_v is the identity.
template <Element T, class Comm>
void ragged_movement(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const columns : {std::int64_t{1}, std::int64_t{3}})
    for (std::int64_t const n :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, std::int64_t{1001}, std::int64_t{20011}}) {
      auto const called = [&](char const* operation) {
        return title<T>(operation, n, ranks) + ", " + std::to_string(columns) + " columns";
      };
      auto const counts = counts_of(ranks, n);
      auto const own = rows_of(rank, n);
      auto const mine = rows<T>(own, columns, rank);
      auto const whole = joined<T>(counts, columns);
      std::int64_t begin = 0;
      for (int r = 0; r < rank; ++r) begin += rows_of(r, n);
      int const root = static_cast<int>((n + 1) % ranks);

      auto all = comm.all_gather_v(mine);
      expect_equal<T>(report, all.values(), whole, called("all_gather_v"));
      bool counted = all.blocks() == ranks;
      for (int r = 0; counted && r < ranks; ++r)
        counted =
            all.counts()[static_cast<std::size_t>(r)] == rows_of(r, n) && all.block(r).shape()[0] == rows_of(r, n);
      report.expect(counted, called("all_gather_v: counts"));
      expect_equal<T>(report, comm.all_gather_v_async(mine.clone()).wait().values(), whole,
                      called("all_gather_v_async"));
      Tensor<T> to = zeros<T>(whole.shape());
      comm.all_gather_v(mine, to, counts);
      expect_equal<T>(report, to, whole, called("all_gather_v with counts"));
      to.fill(T{});
      auto block = to.slice(0, begin, begin + own);
      std::copy_n(mine.data(), mine.size(), block.data());
      comm.all_gather_v(block, to, counts);
      expect_equal<T>(report, to, whole, called("all_gather_v in place"));
      to = comm.all_gather_v_async(mine, zeros<T>(whole.shape()), std::vector<std::int64_t>(counts)).wait();
      expect_equal<T>(report, to, whole, called("all_gather_v_async with counts that are gone"));
      if (ranks == 2) {
        to.fill(T{});
        auto request = comm.all_gather_v_async(mine, to, {rows_of(0, n), rows_of(1, n)});
        request.wait();
        expect_equal<T>(report, to, whole, called("all_gather_v_async with counts in braces"));
      }

      auto at_root = comm.gather_v(mine, root);
      if (rank == root) expect_equal<T>(report, at_root.values(), whole, called("gather_v"));
      else report.expect(at_root.blocks() == 0 && at_root.values().size() == 0, called("gather_v, not root"));
      at_root = comm.gather_v_async(mine, root).wait();
      if (rank == root) expect_equal<T>(report, at_root.values(), whole, called("gather_v_async"));
      if (rank == root) to.fill(T{});
      comm.gather_v(mine, to, rank == root ? counts : std::vector<std::int64_t>{}, root);
      expect_equal<T>(report, to, whole, called("gather_v with counts"));
      if (rank == root) {
        to.fill(T{});
        auto const own_block = to.slice(0, begin, begin + own);
        std::copy_n(mine.data(), mine.size(), own_block.data());
        comm.gather_v_async(own_block, to, counts, root).wait();
      } else {
        comm.gather_v_async(mine, to, counts, root).wait();
      }
      expect_equal<T>(report, to, whole, called("gather_v_async in place"));

      Tensor<T> const nothing;
      auto const& from = rank == root ? whole : nothing;
      expect_equal<T>(report, comm.scatter_v(from, counts, root), mine, called("scatter_v of gather_v"));
      expect_equal<T>(report, comm.scatter_v_async(from, counts, root).wait(), mine, called("scatter_v_async"));
      Tensor<T> part = zeros<T>(mine.shape());
      comm.scatter_v(from, part, counts, root);
      expect_equal<T>(report, part, mine, called("scatter_v with counts"));
      part = comm.scatter_v_async(from, zeros<T>(mine.shape()), counts, root).wait();
      expect_equal<T>(report, part, mine, called("scatter_v_async with counts"));
      if (rank == root) {
        auto in_place = whole.clone();
        comm.scatter_v(in_place, in_place.slice(0, begin, begin + own), counts, root);
        expect_equal<T>(report, in_place, whole, called("scatter_v in place"));
      } else {
        comm.scatter_v(from, part, counts, root);
        expect_equal<T>(report, part, mine, called("scatter_v, root in place"));
      }
    }
}

/// all_to_all_v: explicit and inferred counts, in place where the counts are symmetric; twice is the identity.
template <Element T, class Comm>
void ragged_exchange(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  // What rank a sends to rank b; block i of a's buffer begins with that of rank 0.
  auto const sends = [](int a, int b, std::int64_t n) {
    return (a + 2 * b) % 4 == 1 ? std::int64_t{0} : n + a * 2 + b;
  };
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{301}, std::int64_t{9001}}) {
    auto const called = [&](char const* operation) { return title<T>(operation, n, ranks); };
    auto const block_of = [&](int a, int b, std::int64_t i) { return element<T>(a, i, 7 * b); };
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> received;
    std::int64_t total = 0;
    for (int r = 0; r < ranks; ++r) {
      sent.push_back(sends(rank, r, n));
      received.push_back(sends(r, rank, n));
      total += sent.back();
    }
    Tensor<T> from(Shape{total});
    std::int64_t at = 0;
    std::int64_t incoming = 0;
    for (int r = 0; r < ranks; ++r) {
      for (std::int64_t i = 0; i < sends(rank, r, n); ++i) from.data()[at++] = block_of(rank, r, i);
      incoming += sends(r, rank, n);
    }
    Tensor<T> wanted(Shape{incoming});
    at = 0;
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < sends(r, rank, n); ++i) wanted.data()[at++] = block_of(r, rank, i);

    auto exchanged = comm.all_to_all_v(from, sent);
    expect_equal<T>(report, exchanged.values(), wanted, called("all_to_all_v"));
    bool counted = true;
    for (int r = 0; r < ranks; ++r)
      counted = counted && exchanged.counts()[static_cast<std::size_t>(r)] == sends(r, rank, n);
    report.expect(counted, called("all_to_all_v: counts"));
    expect_equal<T>(report, comm.all_to_all_v_async(from.clone(), sent).wait().values(), wanted,
                    called("all_to_all_v_async"));
    Tensor<T> to = zeros<T>(Shape{incoming});
    comm.all_to_all_v(from, to, sent, received);
    expect_equal<T>(report, to, wanted, called("all_to_all_v with counts"));
    Tensor<T> back = zeros<T>(Shape{total});
    comm.all_to_all_v_async(to, back, received, sent).wait();
    expect_equal<T>(report, back, from, called("all_to_all_v twice"));

    std::vector<std::int64_t> const symmetric = [&] {
      std::vector<std::int64_t> counts;
      for (int r = 0; r < ranks; ++r) counts.push_back(n + rank + r);
      return counts;
    }();
    std::int64_t size = 0;
    for (auto const count : symmetric) size += count;
    auto const before = filled<T>(size, rank);
    auto x = before.clone();
    comm.all_to_all_v(x, x, symmetric, symmetric);
    comm.all_to_all_v(x, x, symmetric, symmetric);
    expect_equal<T>(report, x, before, called("all_to_all_v in place, twice"));
  }
}

/// reduce_scatter_v against the rows of all_reduce, bit for bit, and all_gather_v of it.
template <Element T, class Comm, class Op>
void ragged_reduction(Comm& comm, Report& report, Op const& op) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{301}, std::int64_t{9001}}) {
    auto const called = [&](char const* operation) {
      return title<T>(operation, n, ranks) + " with " + std::string(name(comm::operator_kind<Op>()));
    };
    auto const counts = counts_of(ranks, n);
    std::int64_t total = 0;
    std::int64_t begin = 0;
    for (int r = 0; r < ranks; ++r) {
      if (r < rank) begin += counts[static_cast<std::size_t>(r)];
      total += counts[static_cast<std::size_t>(r)];
    }
    std::int64_t const own = rows_of(rank, n);
    auto const whole = rows<T>(total, 2, rank);
    auto all = whole.clone();
    comm.all_reduce(all, op);
    Tensor<T> wanted = zeros<T>(Shape{own, 2});
    if (own != 0)
      std::memcpy(static_cast<void*>(wanted.data()), all.data() + begin * 2,
                  static_cast<std::size_t>(wanted.size()) * sizeof(T));

    expect_equal<T>(report, comm.reduce_scatter_v(whole, counts, op), wanted, called("reduce_scatter_v"));
    expect_equal<T>(report, comm.reduce_scatter_v_async(whole.clone(), counts, op).wait(), wanted,
                    called("reduce_scatter_v_async"));
    Tensor<T> to = zeros<T>(Shape{own, 2});
    comm.reduce_scatter_v(whole, to, counts, op);
    expect_equal<T>(report, to, wanted, called("reduce_scatter_v into a buffer"));
    auto in_place = whole.clone();
    auto const block = in_place.slice(0, begin, begin + own);
    comm.reduce_scatter_v_async(in_place, block, counts, op).wait();
    comm.all_gather_v(block, in_place, counts);
    expect_equal<T>(report, in_place, all, called("reduce_scatter_v then all_gather_v, in place"));
  }
}

template <class Comm>
void ragged_reductions(Comm& comm, Report& report) {
  ragged_reduction<float>(comm, report, sum);
  ragged_reduction<bfloat16>(comm, report, avg);
  ragged_reduction<std::int32_t>(comm, report, max);
  ragged_reduction<std::int64_t>(comm, report, [](std::int64_t a, std::int64_t b) { return 3 * a + b; });
}

/// Many with inferred counts in flight, others started and finished between their two parts, some dropped.
template <class Comm>
void ragged_in_flight(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<Request<Ragged<float>>> pending;
  for (int k = 0; k < 20; ++k) {
    pending.push_back(comm.all_gather_v_async(full<float>(Shape{k % 3 == 0 ? 3000 : rank}, static_cast<float>(k))));
    if (k % 4 == 0) report.expect(comm.all_reduce(1, sum) == ranks, "another collective between the two parts");
    if (k % 5 == rank) static_cast<void>(pending.back().test());
  }
  for (int k = 19; k >= 0; --k) {
    auto const all = pending[static_cast<std::size_t>(k)].wait();
    bool right = all.blocks() == ranks;
    for (int r = 0; right && r < ranks; ++r) right = all.block(r).size() == (k % 3 == 0 ? 3000 : r);
    for (float const x : all.values().elements()) right = right && x == static_cast<float>(k);
    report.expect(right, "all_gather_v_async " + std::to_string(k) + " of many in flight");
  }
  auto const hollow = comm.all_gather_v(zeros<float>(Shape{rank + 1, 0, 2}));
  report.expect(hollow.values().shape() == Shape{ranks * (ranks + 1) / 2, 0, 2} && hollow.counts().back() == ranks,
                "rows without elements are counted");
  std::vector<std::int64_t> const ones(static_cast<std::size_t>(ranks), 1);
  report.expect(comm.scatter_v(zeros<float>(Shape{ranks, 0}), ones).shape() == Shape{1, 0}, "and scattered");
  for (int k = 0; k < 3; ++k) {
    auto dropped = comm.all_gather_v_async(full<float>(Shape{rank * 1000}, 1.0f));
    static_cast<void>(dropped.test());
  }
  comm.barrier();
}

/// What one rank can see alone, and what only the others know.
template <class Comm>
void ragged_refusals(Comm& comm, Report& report) {
  int const ranks = comm.size();
  Tensor<float> x = zeros<float>(Shape{12, 2});
  Tensor<float> y = zeros<float>(Shape{12 * ranks, 2});
  std::vector<std::int64_t> const too_many(static_cast<std::size_t>(ranks) + 1, 3);
  expect_error(report, ErrorKind::invalid_argument, std::to_string(ranks + 1) + " counts for " + std::to_string(ranks),
               [&] { comm.all_gather_v(x, y, too_many); });
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 11);
  expect_error(report, ErrorKind::shape, "do not make the " + std::to_string(12 * ranks) + " rows",
               [&] { comm.all_gather_v(x, y, counts); });
  counts[0] = -1;
  expect_error(report, ErrorKind::invalid_argument, "count -1 is negative",
               [&] { static_cast<void>(comm.all_to_all_v(y, counts)); });
  counts.assign(static_cast<std::size_t>(ranks), 12);
  expect_error(report, ErrorKind::shape, "rows of different sizes", [&] {
    comm.all_gather_v(zeros<float>(Shape{12, 3}), y, counts);
  });
  expect_error(report, ErrorKind::shape, "own block has", [&] {
    comm.all_gather_v(zeros<float>(Shape{11, 2}), y, counts);
  });
  int const other = (comm.rank() + 1) % ranks;
  if (ranks > 1)
    expect_error(report, ErrorKind::invalid_argument, "overlap",
                 [&] { comm.all_gather_v(y.slice(0, 12 * other, 12 * other + 12), y, counts); });
  float number = 1.0f;
  expect_error(report, ErrorKind::shape, "has no rows",
               [&] { static_cast<void>(comm.all_gather_v(TensorView<float>(&number, Shape{}))); });
  expect_error(report, ErrorKind::invalid_argument, "root " + std::to_string(ranks) + " does not exist",
               [&] { static_cast<void>(comm.gather_v(x, ranks)); });
  expect_error(report, ErrorKind::out_of_range, "does not exist", [&] { static_cast<void>(Ragged<float>().block(0)); });
  report.expect(comm.all_reduce(1, sum) == ranks, "after refusals the communicator works");
}

/// Rows of different shapes, which no rank can see alone: an Error that names both sides, on every rank. The
/// communicator is of no use afterwards.
template <class Comm>
void ragged_disagreement(Comm& comm, Report& report) {
  if (comm.size() == 1) {
    report.expect(true, "one rank agrees with itself");
    return;
  }
  auto doomed = comm.split(0);
  expect_error(report, ErrorKind::communication, "Pass rows of one shape on every rank", [&] {
    static_cast<void>(doomed.all_gather_v(zeros<float>(Shape{4, doomed.rank() == 1 ? 3 : 2})));
  });
}

}  // namespace tutti::laws
