// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of all_reduce, reduce and reduce_scatter: operators, callables, narrow types, determinism.

#include <tutti/testing/laws/report.hpp>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::laws {

/// The exact result for element i, rounded once.
template <Element T, class Op>
T reduced(Op const&, int ranks, std::int64_t i, int salt = 0) {
  auto const bits = [](double number) { return static_cast<std::int64_t>(number); };
  double result = static_cast<double>(element<T>(0, i, salt));
  for (int r = 1; r < ranks; ++r) {
    auto const next = static_cast<double>(element<T>(r, i, salt));
    switch (comm::operator_kind<Op>()) {
      case Operator::sum: case Operator::avg: case Operator::callable: case Operator::none: result += next; break;
      case Operator::prod: result *= next; break;
      case Operator::min: result = next < result ? next : result; break;
      case Operator::max: result = next > result ? next : result; break;
      case Operator::logical_and: result = result != 0 && next != 0; break;
      case Operator::logical_or: result = result != 0 || next != 0; break;
      case Operator::logical_xor: result = (result != 0) != (next != 0); break;
      case Operator::bitwise_and: result = static_cast<double>(bits(result) & bits(next)); break;
      case Operator::bitwise_or: result = static_cast<double>(bits(result) | bits(next)); break;
      case Operator::bitwise_xor: result = static_cast<double>(bits(result) ^ bits(next)); break;
      case Operator::min_location:
      case Operator::max_location: break;  // of Located, which have laws of their own
    }
  }
  constexpr bool logical = comm::is_logical(comm::operator_kind<Op>());
  if (logical && ranks == 1) return static_cast<T>(element<T>(0, i, salt));
  if constexpr (comm::operator_kind<Op>() == Operator::avg) {
    if constexpr (is_floating(dtype_of<T>))
      return static_cast<T>(static_cast<comm::Accumulator<T>>(result) / static_cast<comm::Accumulator<T>>(ranks));
    else return static_cast<T>(static_cast<std::int64_t>(result) / ranks);
  } else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) {
    return T(static_cast<float>(result));
  } else {
    return static_cast<T>(result);
  }
}

/// all_reduce, reduce, reduce_scatter with one operator: against the oracle for every form, and against each other:
/// reduce then broadcast, and reduce_scatter then all_gather, equal all_reduce bit for bit.
template <Element T, class Comm, class Op>
void reduction(Comm& comm, Report& report, Op const& op) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const n : sizes()) {
    auto const called = [&](char const* operation) {
      return title<T>(operation, n, ranks) + " with " + std::string(name(comm::operator_kind<Op>()));
    };
    auto const expected = repeated_by<T>(n * ranks, [&](std::int64_t i) { return reduced<T>(op, ranks, i); });
    T const* const exact = expected.data();
    int const root = static_cast<int>((n + 1) % ranks);
    auto const mine = filled<T>(n, rank);

    auto all = mine.clone();
    comm.all_reduce(all, op);
    expect_elements<T>(report, all, n, called("all_reduce in place"), exact);
    Tensor<T> out(Shape{n});
    comm.all_reduce(mine, out, op);
    expect_elements<T>(report, out, n, called("all_reduce"), exact);
    out = comm.all_reduce_async(mine.clone(), op).wait();
    expect_elements<T>(report, out, n, called("all_reduce_async"), exact);

    auto at_root = mine.clone();
    comm.reduce(at_root, op, root);
    if (rank == root) expect_elements<T>(report, at_root, n, called("reduce in place"), exact);
    else expect_elements<T>(report, at_root, n, called("reduce in place, not root"), mine.data());
    comm.broadcast(at_root, root);
    expect_elements<T>(report, at_root, n, called("reduce then broadcast"), all.data());
    if (n != 0) std::memset(static_cast<void*>(out.data()), 1, static_cast<std::size_t>(n) * sizeof(T));
    auto const before = out.clone();
    comm.reduce(mine, out, op, root);
    if (rank == root) expect_elements<T>(report, out, n, called("reduce"), exact);
    else expect_elements<T>(report, out, n, called("reduce, not root"), before.data());
    at_root = comm.reduce_async(mine.clone(), op, root).wait();
    if (rank == root) expect_elements<T>(report, at_root, n, called("reduce_async"), exact);

    auto const whole = filled<T>(n * ranks, rank);
    T const* const own = exact + n * rank;
    Tensor<T> part = comm.reduce_scatter(whole, op);
    report.expect(part.shape() == Shape{n}, called("reduce_scatter: shape"));
    expect_elements<T>(report, part, n, called("reduce_scatter"), own);
    part = comm.reduce_scatter_async(whole.clone(), op).wait();
    expect_elements<T>(report, part, n, called("reduce_scatter_async"), own);
    auto in_place = whole.clone();
    comm.reduce_scatter(in_place, in_place.slice(0, n * rank, n * (rank + 1)), op);
    comm.all_gather(in_place.slice(0, n * rank, n * (rank + 1)), in_place);
    expect_elements<T>(report, in_place, n * ranks, called("reduce_scatter then all_gather, in place"), exact);
  }
}

/// Every operator that the type has.
template <Element T, class Comm>
void reductions(Comm& comm, Report& report) {
  if constexpr (comm::reducible<T, Sum>()) reduction<T>(comm, report, sum);
  if constexpr (comm::reducible<T, Prod>()) reduction<T>(comm, report, prod);
  if constexpr (comm::reducible<T, Min>()) reduction<T>(comm, report, min);
  if constexpr (comm::reducible<T, Max>()) reduction<T>(comm, report, max);
  if constexpr (comm::reducible<T, Avg>()) reduction<T>(comm, report, avg);
  if constexpr (comm::reducible<T, LogicalAnd>()) reduction<T>(comm, report, logical_and);
  if constexpr (comm::reducible<T, LogicalOr>()) reduction<T>(comm, report, logical_or);
  if constexpr (comm::reducible<T, LogicalXor>()) reduction<T>(comm, report, logical_xor);
  if constexpr (comm::reducible<T, BitwiseAnd>()) reduction<T>(comm, report, bitwise_and);
  if constexpr (comm::reducible<T, BitwiseOr>()) reduction<T>(comm, report, bitwise_or);
  if constexpr (comm::reducible<T, BitwiseXor>()) reduction<T>(comm, report, bitwise_xor);
}

/// Callables: with captured state, without commutativity, and on types that have no operators.
template <class Comm>
void callables(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<std::int64_t> const state(1000, 10);
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{5}, std::int64_t{3001}}) {
    // a * 10 + b in rank order writes the ranks as digits: 123 on ranks 1, 2, 3.
    auto const digits = [&state](std::int64_t a, std::int64_t b) { return a * state[7] + b; };
    std::int64_t expected = 1;
    for (int r = 1; r < ranks; ++r) expected = expected * 10 + r + 1;
    Tensor<std::int64_t> x(Shape{n});
    x.fill(rank + 1);
    comm.all_reduce(x, digits);
    expect_elements<std::int64_t>(report, x, n,
                                  "all_reduce of " + std::to_string(n) + " with a capturing callable, in rank order",
                                  [&](std::int64_t) { return expected; });
    x.fill(rank + 1);
    comm.reduce(x, digits, ranks - 1);
    expect_elements<std::int64_t>(report, x, n, "reduce with a callable",
                                  [&](std::int64_t) { return rank == ranks - 1 ? expected : rank + 1; });
    Tensor<std::int64_t> whole(Shape{n * ranks});
    whole.fill(rank + 1);
    auto pending = comm.reduce_scatter_async(whole, digits);
    auto const part = pending.wait();
    expect_elements<std::int64_t>(report, part, n, "reduce_scatter_async with a callable",
                                  [&](std::int64_t) { return expected; });
    Tensor<std::byte> bytes(Shape{n});
    bytes.fill(static_cast<std::byte>(1 << rank));
    comm.all_reduce(bytes, [](std::byte a, std::byte b) { return a | b; });
    expect_elements<std::byte>(report, bytes, n, "all_reduce of bytes with or",
                               [&](std::int64_t) { return static_cast<std::byte>((1 << ranks) - 1); });
  }
}

/// 256, 1, 1, 1: a bfloat16 accumulator would stay at 256. The sum is taken in float and rounded once.
template <class Comm>
void narrow_sums(Comm& comm, Report& report) {
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{70001}}) {
    Tensor<bfloat16> x(Shape{n});
    x.fill(bfloat16(comm.rank() == 0 ? 256.0f : 1.0f));
    comm.all_reduce(x, sum);
    bfloat16 const expected(256.0f + static_cast<float>(comm.size() - 1));
    expect_elements<bfloat16>(report, x, n, "all_reduce of bfloat16 rounds once",
                              [&](std::int64_t) { return expected; });
    Tensor<float16> y(Shape{n});
    y.fill(float16(comm.rank() == 0 ? 2048.0f : 1.0f));
    comm.all_reduce(y, [](float a, float b) { return a + b; });
    float16 const wanted(2048.0f + static_cast<float>(comm.size() - 1));
    expect_elements<float16>(report, y, n, "all_reduce of float16 with a callable on float rounds once",
                             [&](std::int64_t) { return wanted; });
  }
}

/// All ranks hold the same bits, and a second run gives them again, for sums that round.
template <class Comm>
void determinism(Comm& comm, Report& report) {
  for (std::int64_t const n : {std::int64_t{7}, std::int64_t{5000}, std::int64_t{100003}}) {
    Tensor<float> x(Shape{n});
    auto const fill = [&] {
      for (std::int64_t i = 0; i < n; ++i)
        x.data()[i] = 1.0f / static_cast<float>(1 + (i * 37 + comm.rank() * 101) % 997);
    };
    fill();
    comm.all_reduce(x, sum);
    auto const first = x.clone();
    auto const rank_0 = [&] {
      auto y = x.clone();
      comm.broadcast(y, 0);
      return y;
    }();
    expect_elements<float>(report, x, n, "all_reduce gives the same bits on every rank", rank_0.data());
    fill();
    comm.all_reduce(x, sum);
    expect_elements<float>(report, x, n, "all_reduce gives the same bits again", first.data());
    if (!comm::capability::compares(comm.backend())) continue;  // there an MPI library combines in an order of its own
    fill();
    comm.reduce(x, sum, comm.size() - 1);
    comm.broadcast(x, comm.size() - 1);
    expect_elements<float>(report, x, n, "all_reduce gives the bits of reduce", first.data());
    expect_elements<float>(report, x, n, "all_reduce combines in rank order", [&](std::int64_t i) {
      float total = 1.0f / static_cast<float>(1 + (i * 37) % 997);
      for (int r = 1; r < comm.size(); ++r) total += 1.0f / static_cast<float>(1 + (i * 37 + r * 101) % 997);
      return total;
    });
  }
}

}  // namespace tutti::laws
