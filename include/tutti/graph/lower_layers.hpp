// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lowering of a model's layers that have one result: dropout, rotary embedding, the gate of SwiGLU, embedding, and the
/// gradient of attention.

#include <tutti/core/list.hpp>
#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/rotary.hpp>

#include <cstddef>

namespace tutti::graph::lowering {

inline Value lower_dropout(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  if (graph.real(id) == 0) return x[0];
  Type const& type = graph.type(id);
  List<Ref> reads{emit.contiguous(x[0], DType::float32)};
  for (std::size_t i = 1; i < 5; ++i) reads.push_back(emit.contiguous(x[i], DType::int64));
  Ref const y = emit.fresh(DType::float32, type.shape);
  Step& step = emit.push(StepKind::dropout);
  step.value = graph.real(id);
  step.reads = reads;
  step.writes = {y};
  return emit.as(y, type.dtype);
}

/// A value as (rows, C), where it lies if all rows are equally far apart, as those of a packed projection are.
inline Ref rows_of(Emitter& emit, Value const& x) {
  int const last = x.shape.rank() - 1;
  List<int> axes;
  for (int axis = 0; axis < last; ++axis) axes.push_back(axis);
  Ref ref = emit.ref(x);
  auto rows = collapse(ref, axes);
  if (ref.dtype != DType::float32 || ref.strides[at(last)] != 1 || !rows) {
    ref = emit.contiguous(view_value(ref), DType::float32);
    rows = collapse(ref, axes);
  }
  ref.shape = Shape{rows->extent, x.shape[last]};
  ref.strides = {rows->extent > 1 ? rows->stride : x.shape[last], 1};
  return ref;
}

/// Rotary embedding and the gate of SwiGLU.
inline Value lower_rows(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  bool const rotary = graph.op(id) == Op::rotary;
  Type const& type = graph.type(id);
  List<Ref> reads;
  for (std::size_t i = 0; i < x.size(); ++i)
    reads.push_back(rotary && i > 0 ? emit.contiguous(x[i], DType::float32) : rows_of(emit, x[i]));
  Ref const y = emit.fresh(DType::float32, type.shape);
  Step& step = emit.push(rotary ? StepKind::rotary : StepKind::swiglu);
  if (rotary) {
    step.pairing = static_cast<kernel::RotaryPairing>(graph.integer(id, 0));
    step.inverse = graph.integer(id, 1) != 0;
  }
  step.reads = reads;
  step.writes = {y};
  return emit.as(y, type.dtype);
}

inline Value lower_attention_gradient(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  Type const& type = graph.type(id);
  auto const reads = emit.floats(x);
  Ref const y = emit.fresh(DType::float32, type.shape);
  Step& step = emit.push(StepKind::attention_gradient);
  step.heads = graph.integer(id, 0);
  step.kv_heads = graph.integer(id, 1);
  step.product = product_type(graph, id);
  step.value = graph.real(id);
  step.reads = reads;
  step.writes = {y};
  return emit.as(y, type.dtype);
}

inline Value lower_embedding(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  Type const& type = graph.type(id);
  List<Ref> reads{emit.contiguous(x[0], DType::int32), emit.contiguous(x[1], DType::float32), {}};
  if (x.size() > 2) reads[2] = emit.contiguous(x[2], DType::float32);
  Ref const y = emit.fresh(DType::float32, type.shape);
  Step& step = emit.push(StepKind::embedding);
  step.vocabulary = x[1].shape[0];
  step.reads = reads;
  step.writes = {y};
  return emit.as(y, type.dtype);
}

}  // namespace tutti::graph::lowering
