// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lowering of what crosses ranks, and of the number of the rank itself.

#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/steps.hpp>

#include <cstdint>

namespace tutti::graph::lowering {

inline Value lower_rank(Emitter& emit, Graph const& graph, Id id) {
  Type const& type = graph.type(id);
  Ref const y = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(StepKind::rank);
  step.mesh_axis = mesh_axis(graph, id);
  step.writes = {y};
  return view_value(y);
}

inline Ref all_reduced(Emitter& emit, Ref const& x, std::int64_t operation, MeshAxis axis) {
  Ref const dense = emit.contiguous(x);
  Ref const y = emit.fresh(x.dtype, x.shape);
  Step& step = emit.push(StepKind::all_reduce);
  step.operation = static_cast<std::uint8_t>(operation);
  step.mesh_axis = axis;
  step.reads = {dense};
  step.writes = {y};
  return y;
}
/// Of a stack part by part.
inline Value lower_all_reduce(Emitter& emit, Graph const& graph, Id id, Value const& x) {
  std::int64_t const operation = graph.integer(id);
  if (x.is_stack()) {
    Value result = x;
    for (Ref& part : result.parts) part = all_reduced(emit, part, operation, mesh_axis(graph, id));
    return result;
  }
  return view_value(all_reduced(emit, emit.ref(x), operation, mesh_axis(graph, id)));
}

/// Collectives that are a step of their own, all but the all-reduce.
inline Value lower_collective(Emitter& emit, Graph const& graph, Id id, Value const& x) {
  Type const& type = graph.type(id);
  auto const integers = graph.integers(id);
  StepKind const kind = graph.op(id) == Op::broadcast      ? StepKind::broadcast
                        : graph.op(id) == Op::all_gather   ? StepKind::all_gather
                        : graph.op(id) == Op::all_to_all   ? StepKind::all_to_all
                        : graph.op(id) == Op::send_receive ? StepKind::send_receive
                                                           : StepKind::reduce_scatter;
  Ref const dense = emit.contiguous(x), y = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(kind);
  step.reads = {dense};
  step.writes = {y};
  step.mesh_axis = mesh_axis(graph, id);
  // Of a broadcast its root; of the others the number of ranks, checked when a run starts.
  step.root = static_cast<std::int32_t>(integers[0]);
  if (kind == StepKind::reduce_scatter) step.operation = static_cast<std::uint8_t>(integers[1]);
  if (kind == StepKind::send_receive) {
    step.by = static_cast<std::int32_t>(integers[1]);
    step.wraps = integers[2] != 0;
  }
  return view_value(y);
}

}  // namespace tutti::graph::lowering
