// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The laws of reductions over a fixed set of contributions.

#include <tutti/testing/laws/elements.hpp>

namespace tutti::laws {

/// A number whose sums round differently in every order.
inline double rough(std::int64_t contribution, std::int64_t i) {
  double const x = 1.0 / static_cast<double>(1 + (contribution * 7919 + i * 104729) % 997);
  return contribution % 3 == 0 ? -x * 1e3 : x;
}

/// The tree over contributions [first, last), in A.
template <class A, class Of, class Combine>
A tree(std::int64_t first, std::int64_t last, Of&& of, Combine&& combine) {
  if (last - first == 1) return of(first);
  std::int64_t const middle = first + (last - first) / 2;
  return combine(tree<A>(first, middle, of, combine), tree<A>(middle, last, of, combine));
}

/// The same bits as the tree over all of them gives on one rank, in every form. 12 divides among 1, 2, 3 and 4 ranks.
template <Element T, class Comm>
void contributions(Comm& comm, Report& report) {
  using A = comm::Accumulator<T>;
  int const rank = comm.rank();
  int const ranks = comm.size();
  for (std::int64_t const number : {std::int64_t{ranks}, std::int64_t{12}, std::int64_t{36}})
    for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{65}, std::int64_t{5003}}) {
      std::int64_t const own = number / ranks;
      auto const called = [&](char const* what) {
        return title<T>(what, n, ranks) + ", " + std::to_string(number) + " contributions";
      };
      auto const value = [&](std::int64_t v, std::int64_t i) {
        return static_cast<T>(static_cast<float>(rough(v, i)));
      };
      auto const expected = [&](std::int64_t i) {
        return static_cast<T>(tree<A>(
            0, number, [&](std::int64_t v) { return static_cast<A>(value(v, i)); }, [](A a, A b) { return a + b; }));
      };
      Tensor<T> x(Shape{own, n});
      for (std::int64_t row = 0; row < own; ++row)
        for (std::int64_t i = 0; i < n; ++i) x(row, i) = value(rank * own + row, i);
      auto const before = x.clone();
      Tensor<T> total = comm.all_reduce_contributions(x, sum);
      report.expect(total.shape() == Shape{n}, called("all_reduce_contributions: shape"));
      expect_elements<T>(report, total, n, called("all_reduce_contributions"), expected);
      total.fill(T{});
      comm.all_reduce_contributions(x, total, sum);
      expect_elements<T>(report, total, n, called("all_reduce_contributions into a buffer"), expected);
      expect_elements<T>(report, x, own * n, called("all_reduce_contributions leaves its input alone"), before.data());
      total = comm.all_reduce_contributions_async(x.clone(), sum).wait();
      expect_elements<T>(report, total, n, called("all_reduce_contributions_async"), expected);
      total = comm.all_reduce_contributions_async(x, zeros<T>(Shape{n}), avg).wait();
      expect_elements<T>(report, total, n, called("all_reduce_contributions_async with avg"), [&](std::int64_t i) {
        A const sum_of = tree<A>(
            0, number, [&](std::int64_t v) { return static_cast<A>(value(v, i)); }, [](A a, A b) { return a + b; });
        return static_cast<T>(sum_of / static_cast<A>(number));
      });
    }
}

/// Bits of one fixed set of contributions, as hashes: compared between runs on different numbers of ranks.
template <class Comm>
std::uint64_t contribution_bits(Comm& comm) {
  std::int64_t const own = 24 / comm.size();
  Tensor<float> x(Shape{own, 1009});
  for (std::int64_t row = 0; row < own; ++row)
    for (std::int64_t i = 0; i < 1009; ++i) x(row, i) = static_cast<float>(rough(comm.rank() * own + row, i));
  auto const total = comm.all_reduce_contributions(x, sum);
  std::uint64_t bits = 1469598103934665603u;
  for (float const value : total.elements()) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    bits = (bits ^ word) * 1099511628211u;
  }
  return bits;
}

/// A group of every size that the communicator has room for gives the same bits.
template <class Comm>
void contributions_on_any_ranks(Comm& comm, Report& report) {
  std::uint64_t alone = 0;
  for (int size = 1; size <= comm.size(); ++size) {
    auto group = comm.split(comm.rank() / size);
    bool const full = group.size() == size;  // the last group may be smaller
    std::uint64_t const bits = contribution_bits(group);
    if (size == 1) alone = bits;
    else report.expect(bits == alone, "the same bits on " + std::to_string(group.size()) + (full ? " ranks" : " left"));
  }
  report.expect(comm.broadcast_value(alone, 0) == alone, "and on every rank");
}

/// Callables, structs, complex numbers, and shapes that are refused.
template <class Comm>
void contribution_forms(Comm& comm, Report& report) {
  int const rank = comm.rank();
  int const ranks = comm.size();
  std::vector<std::complex<double>> z{{1.0, 0.0 + rank}, {2.0, 0.5}};
  auto const total = comm.all_reduce_contributions(z, sum);
  report.expect(total.rank() == 0 &&
                    total.data()[0] == std::complex<double>(3.0 * ranks, ranks * (ranks - 1) / 2.0 + 0.5 * ranks),
                "contributions of complex numbers");
  std::vector<Particle> particles{particle(rank, 0), particle(rank, 1), particle(rank, 2)};
  auto const heaviest = comm.all_reduce_contributions(
      particles, [](Particle const& a, Particle const& b) { return a.tag.number < b.tag.number ? b : a; });
  report.expect(heaviest.data()[0] == particle(ranks - 1, 2), "contributions of structs, with a callable");
  Tensor<float> x = zeros<float>(Shape{2, 3});
  Tensor<float> wrong = zeros<float>(Shape{4});
  expect_error(report, ErrorKind::shape, "shapes are (2, 3) and (4,)",
               [&] { comm.all_reduce_contributions(x, wrong, sum); });
  expect_error(report, ErrorKind::shape, "at least one of the second", [&] {
    static_cast<void>(comm.all_reduce_contributions(zeros<float>(Shape{0, 3}), sum));
  });
  expect_error(report, ErrorKind::invalid_argument, "overlap", [&] { comm.all_reduce_contributions(x, x[1], sum); });
}

}  // namespace tutti::laws
