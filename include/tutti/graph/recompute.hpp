// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which values of a loop's body are cheap to compute again, and which must be kept: what crosses ranks.

#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>

namespace tutti::graph::detail {

/// Cheaper to do again than to keep, or meant to be.
constexpr bool is_free(Graph const& graph, Id id) {
  switch (graph.op(id)) {
    case Op::constant:
    case Op::iota:
    case Op::rank:
    case Op::reshape:
    case Op::broadcast_in_dim:
    case Op::vary:
    case Op::stop_gradient: return true;
    case Op::all_gather: return gathering(graph, id).again;
    default: return false;
  }
}

/// One pass over the values that it reads, and none of a product's work.
constexpr bool is_pointwise(Graph const& graph, Id id) {
  Op const op = graph.op(id);
  switch (op) {
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::rng_bits:
    case Op::layer_norm:
    case Op::rms_norm:
    case Op::rotary:
    case Op::cumsum:
    case Op::dropout:
    case Op::swiglu: return true;
    default: return info(op).kind == OpClass::elementwise || info(op).kind == OpClass::shape;
  }
}

/// A value that crosses ranks.
constexpr bool is_sent(Graph const& graph, Id id) {
  switch (graph.op(id)) {
    case Op::all_reduce:
    case Op::broadcast:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
    case Op::send_receive: return true;
    default: return false;
  }
}

}  // namespace tutti::graph::detail
