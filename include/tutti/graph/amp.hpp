// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Mixed precision as a pass. Source: Micikevicius et al. 2018 (arXiv 1710.03740); Kalamkar et al. 2019
/// (arXiv 1905.12322) for bfloat16, which needs no scaling of the loss.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/infer.hpp>
#include <tutti/graph/ir.hpp>

#include <cstdint>
#include <source_location>

namespace tutti::graph {

namespace detail {

constexpr void round_products(Graph& graph, DType compute) {
  for (Id id = 0; id < graph.size(); ++id) {
    if (!is_product(graph.op(id)) || graph.dtype(graph.operand(id, 0)) != DType::float32) continue;
    if (product_type(graph, id) != DType::float32) continue;
    Range& integers = graph.nodes[static_cast<std::size_t>(id)].integers;
    Range const old = integers;
    integers = {static_cast<std::int32_t>(graph.integer_pool.size()), old.count + 1};
    for (std::int32_t i = 0; i < old.count; ++i) {
      std::int64_t const kept = graph.integer_pool[static_cast<std::size_t>(old.first + i)];
      graph.integer_pool.push_back(kept);
    }
    graph.integer_pool.push_back(static_cast<std::int64_t>(compute));
  }
  for (Graph& body : graph.bodies) {
    round_products(body, compute);
    body = canonical(body);
  }
}

}  // namespace detail

/// The graph with all matrix products (dot_general, linear, linear_cross_entropy, those of attention) of float32
/// operands in `compute`: operands are rounded to it, sums and results stay float32
/// (docs/adr/0010-products-that-round-their-operands.md). Everything else stays as it is: parameters, their updates,
/// normalisation, softmax, the loss, sums over ranks. Of a graph that is differentiated already the products of the
/// gradient too; a graph that is differentiated afterwards has them in `compute` as well.
/// Errors    dtype, for anything but bfloat16 and float32, which changes nothing.
constexpr Graph amp(Graph const& graph, DType compute, std::source_location where = std::source_location::current()) {
  if (compute == DType::float32) return graph;
  if (compute != DType::bfloat16)
    refuse(where, "amp", "matrix products are made in bfloat16 or float32", compute, DType::bfloat16);
  Graph result = graph;
  detail::round_products(result, compute);
  return canonical(result);
}

}  // namespace tutti::graph
