// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Vector-Jacobian products of operations that move and multiply arrays.

#include <tutti/graph/back.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::graph::detail {

constexpr List<std::int64_t> inverse(List<std::int64_t> const& permutation) {
  List<std::int64_t> values(permutation.size(), 0);
  for (std::size_t i = 0; i < permutation.size(); ++i)
    values[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return values;
}
constexpr List<std::int64_t> others(List<std::int64_t> const& axes, int rank) {
  List<std::int64_t> rest;
  for (int axis = 0; axis < rank; ++axis)
    if (!contains(axes, axis)) rest.push_back(axis);
  return rest;
}
/// Undoes a reduction over `axes`: the value along every dropped axis.
constexpr Var spread(Var g, Shape const& shape, List<std::int64_t> const& axes) {
  return broadcast_in_dim(g, shape, others(axes, shape.rank()));
}

constexpr void back_broadcast(Back const& n) {
  Shape const x = n.in(0).shape();
  List<std::int64_t> const map = n.integers();
  List<std::int64_t> summed;
  for (int axis = 0, next = 0; axis < n.g().rank(); ++axis) {
    bool const mapped = next < x.rank() && map[static_cast<std::size_t>(next)] == axis;
    if (!mapped || x[next] != n.g().shape()[axis]) summed.push_back(axis);
    next += int{mapped};
  }
  n.give(0, reshape(reduce(Op::reduce_sum, n.g(), std::move(summed), n.where), x));
}
constexpr void back_reduce_max(Back const& n) {
  Shape const shape = n.in(0).shape();
  Var const wins = equal(n.in(0), spread(n.out(), shape, n.integers()));
  Var const count = reduce(Op::reduce_sum, select(wins, full_like(n.in(0), 1), 0.0), n.integers(), n.where);
  n.give(0, select(wins, spread(n.g() / count, shape, n.integers()), 0.0));
}
constexpr void back_slice(Back const& n) {
  Shape const x = n.in(0).shape(), y = n.g().shape();
  List<std::int64_t> low, high, interior;
  for (int axis = 0; axis < x.rank(); ++axis) {
    std::int64_t const start = n.integer(axis), stride = n.integer(2 * x.rank() + axis);
    bool const empty = y[axis] == 0;
    low.push_back(empty ? 0 : start);
    high.push_back(empty ? x[axis] : x[axis] - 1 - (start + (y[axis] - 1) * stride));
    interior.push_back(stride - 1);
  }
  n.give(0, pad(n.g(), low, high, interior));
}
constexpr void back_pad(Back const& n) {
  Shape const x = n.in(0).shape();
  List<std::int64_t> starts, limits, strides;
  for (int axis = 0; axis < x.rank(); ++axis) {
    std::int64_t const low = n.integer(axis), step = n.integer(2 * x.rank() + axis) + 1;
    starts.push_back(low);
    limits.push_back(x[axis] == 0 ? low : low + (x[axis] - 1) * step + 1);
    strides.push_back(step);
  }
  n.give(0, slice(n.g(), starts, limits, strides));
}
constexpr void back_concatenate(Back const& n) {
  auto const axis = static_cast<std::size_t>(n.integer());
  std::int64_t at = 0;
  for (int i = 0; i < n.count(); ++i) {
    Shape const part = n.in(i).shape();
    List<std::int64_t> starts(static_cast<std::size_t>(part.rank()), 0), limits(part.begin(), part.end());
    starts[axis] += at;
    limits[axis] += at;
    at += part[static_cast<int>(axis)];
    n.give(i, slice(n.g(), starts, limits));
  }
}
constexpr List<Var> starts_of(Back const& n, int first) {
  List<Var> starts;
  for (int i = first; i < n.count(); ++i) starts.push_back(n.in(i));
  return starts;
}

/// Brings (batch, free, contracted ascending by the other operand's axis) into the order of an operand of dot_general.
constexpr Var operand_order(Var x, List<std::int64_t> const& batch, List<std::int64_t> const& contracted,
                            List<std::int64_t> const& partner) {
  int const rank = x.rank();
  List<std::int64_t> bound = batch;
  bound.append(contracted.begin(), contracted.end());
  List<std::int64_t> const free = others(bound, rank);
  List<std::int64_t> permutation(static_cast<std::size_t>(rank), 0);
  std::int64_t at = 0;
  for (std::int64_t axis : batch) permutation[static_cast<std::size_t>(axis)] = at++;
  for (std::int64_t axis : free) permutation[static_cast<std::size_t>(axis)] = at++;
  for (std::size_t i = 0; i < contracted.size(); ++i) {
    std::int64_t before = 0;
    for (std::int64_t other : partner) before += other < partner[i];
    permutation[static_cast<std::size_t>(contracted[i])] = at + before;
  }
  return transpose(x, std::move(permutation));
}
constexpr void back_dot(Back const& n) {
  auto const list = [](std::span<std::int64_t const> values) {
    return List<std::int64_t>(values.begin(), values.end());
  };
  DotShape const dot = dot_shape(n.builder.graph(), n.id);
  List<std::int64_t> const za = list(dot.batch_a), zb = list(dot.batch_b), ka = list(dot.contract_a),
                           kb = list(dot.contract_b);
  auto const batch = static_cast<std::int64_t>(za.size());
  auto const free_a = static_cast<std::int64_t>(n.in(0).rank()) - batch - static_cast<std::int64_t>(ka.size());
  auto const free_of = [](List<std::int64_t> bound, List<std::int64_t> const& more, int rank) {
    bound.append(more.begin(), more.end());
    return others(bound, rank);
  };
  Var const g = n.g();
  DType const product = product_type(n.builder.graph(), n.id);
  if (n.wants(0))
    n.give(0, operand_order(dot_general_of(product, g, n.in(1), ascending(batch + free_a, g.rank()),
                                        free_of(zb, kb, n.in(1).rank()), ascending(0, batch), zb),
                            za, ka, kb));
  if (n.wants(1))
    n.give(1, operand_order(dot_general_of(product, g, n.in(0), ascending(batch, batch + free_a),
                                           free_of(za, ka, n.in(0).rank()), ascending(0, batch), za),
                            zb, kb, ka));
}

}  // namespace tutti::graph::detail

// Rules are of no use without their table and the reverse pass.
#include <tutti/graph/vjp.hpp>  // NOLINT(misc-header-include-cycle)
