// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What composites are written out from: their operands in the new graph, and sums over their axes.

#include <tutti/graph/composites.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::graph::detail {

/// A composite being written out: operands by position in the new graph.
struct Parts {
  Builder& builder;
  Graph const& graph;
  Id id;
  List<Var> operands;

  constexpr Var in(int i) const { return operands[static_cast<std::size_t>(i)]; }
  constexpr int count() const { return static_cast<int>(operands.size()); }
  constexpr std::int64_t integer(int i = 0) const { return graph.integer(id, i); }
  constexpr double real(int i = 0) const { return graph.real(id, i); }
};

/// Sum over the last axis, kept as 1 for broadcasting.
constexpr Var last_sum(Var x) { return reshape(reduce_sum(x, {-1}), x.shape().with(x.rank() - 1, 1)); }
constexpr Var last_mean(Var x) { return last_sum(x) * (1.0 / static_cast<double>(last(x.shape()))); }
constexpr Var leading_sum(Var x) { return reduce(Op::reduce_sum, x, ascending(0, x.rank() - 1), Where::current()); }
constexpr Var matrix(DType product, Var x, Var weight) {
  return dot_general_of(product, x, weight, {x.rank() - 1}, {1});
}

}  // namespace tutti::graph::detail
