// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Primitive operations as StableHLO, each as one value, and the check that a graph has none without such a form.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/stablehlo/arrays.hpp>
#include <tutti/graph/stablehlo/call.hpp>
#include <tutti/graph/stablehlo/collectives.hpp>
#include <tutti/graph/stablehlo/philox.hpp>
#include <tutti/graph/stablehlo/writer.hpp>

namespace tutti::graph::stablehlo {

/// Operations, leaves and structure aside, that are written by cases here; functions of elements have theirs in
/// graph/op/.
inline Value primitive(Call const& e) {
  Op const op = e.graph.op(e.id);
  switch (op) {
    case Op::constant: return e.out.number(e.dtype(), e.shape(), e.real());
    case Op::iota: return iota(e);
    case Op::rank: return rank(e);
    case Op::stop_gradient: return e.in();
    case Op::barrier: return e.map("optimization_barrier", e.in());
    case Op::broadcast_in_dim:
      return e.out.op("broadcast_in_dim", {e.in()}, e.dtype(), e.shape(),
                      concat("broadcast_dimensions = ", array_text(e.graph.integers(e.id))));
    case Op::reshape: return e.out.reshape(e.in(), e.shape());
    case Op::transpose:
      return e.out.op("transpose", {e.in()}, e.dtype(), e.shape(),
                      concat("permutation = ", array_text(e.graph.integers(e.id))));
    case Op::slice:
    case Op::pad: return slice(e);
    case Op::concatenate:
      return e.out.op("concatenate", e.operands, e.dtype(), e.shape(), concat("dimension = ", e.integer(), " : i64"));
    case Op::dynamic_slice:
    case Op::dynamic_update_slice: return dynamic_slice(e);
    case Op::reduce_sum:
    case Op::reduce_max: return reduce(e);
    case Op::dot_general: return dot_general(e);
    case Op::gather: return gather(e);
    case Op::scatter_add: return scatter_add(e);
    case Op::rng_bits: return rng_bits(e);
    case Op::vary:
    case Op::partial:
    case Op::all_reduce:
    case Op::broadcast:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
    case Op::send_receive: return collective(e);
    default: break;
  }
  if (is_function(op)) return function(e);
  refuse(e.graph, e.id, ErrorKind::internal, "the exporter lacks this operation; please report it");
}

/// Refuses what has no StableHLO form, while nodes still have the user's lines.
inline void check_exportable(Graph const& graph) {
  for (Id id = 0; id < graph.size(); ++id) {
    if (graph.op(id) == Op::custom)
      refuse(graph, id, ErrorKind::unavailable,
             "an operation from outside the library has no StableHLO form; write it with operations of the library");
    for (int i = 0; i < graph.results(id); ++i)
      if (DType const dtype = graph.type(id, i).dtype; element_type(dtype).empty())
        refuse(graph, id, ErrorKind::dtype,
               concat("StableHLO has no elements of type ", tutti::name(dtype), "; convert it to uint8"));
  }
  for (Graph const& body : graph.bodies) check_exportable(body);
}

}  // namespace tutti::graph::stablehlo
