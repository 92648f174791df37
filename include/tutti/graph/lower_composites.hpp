// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lowering of nodes with several results, and of what a graph hands out: outputs and updates.

#include <tutti/core/list.hpp>
#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/lower_layers.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cross_entropy.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::graph::lowering {

/// Fields m and v are written where they lie, and so is the parameter: the planner checks that nobody reads them later.
inline List<Value> lower_adamw(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  Value const& gradient = x[1];
  bool stacked = false;
  for (std::size_t i = 0; i < 4; ++i) stacked |= x[i].is_stack();
  List<Ref> reads;
  for (std::size_t i = 4; i < 8; ++i) reads.push_back(emit.contiguous(x[i], DType::float32));
  List<Ref> writes;
  List<Value> results(3);
  std::int64_t const parts = stacked ? gradient.shape[0] : 1;
  for (std::int64_t part = 0; part < parts; ++part) {
    Ref refs[4];
    for (std::size_t i = 0; i < 4; ++i) {
      Value const value = stacked ? emit.slice(x[i], part) : x[i];
      refs[i] = emit.contiguous(value, DType::float32);
      bool const in_state = !value.is_constant() && value.kind == Value::Kind::view &&
                            refs[i].buffer == value.ref.buffer && emit.list[refs[i].buffer].pool == Pool::state;
      if (i != 1 && !in_state) refs[i] = emit.copied(refs[i]);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      reads.push_back(refs[i]);
      if (i == 1) continue;
      Ref const written = emit.fresh_over(refs[i]);
      writes.push_back(written);
      Value& result = results[i == 0 ? 0 : i - 1];
      if (stacked)
        result.parts.push_back(written);
      else
        result = view_value(written);
    }
  }
  for (std::size_t i = 0; stacked && i < 3; ++i) {
    results[i].kind = Value::Kind::stack;
    results[i].dtype = DType::float32;
    results[i].shape = gradient.shape;
  }
  Step& step = emit.push(StepKind::adamw);
  step.beta1 = graph.real(id, 0);
  step.beta2 = graph.real(id, 1);
  step.eps = graph.real(id, 2);
  step.weight_decay = graph.real(id, 3);
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  return results;
}

/// Nodes of several results, all of which get a buffer; those that nobody reads are dropped later.
inline List<Value> composite(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  auto const integers = graph.integers(id);
  if (graph.op(id) == Op::adamw) return lower_adamw(emit, graph, id, x);
  List<Ref> reads, writes;
  auto results_as = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      writes.push_back(emit.fresh(DType::float32, graph.type(id, static_cast<int>(i)).shape));
  };
  StepKind kind{};
  double value = 1, eps = 1e-5;
  std::int64_t heads = 0, kv_heads = 0, vocabulary = 0;
  std::int32_t ignored = -1;
  switch (graph.op(id)) {
    case Op::layer_norm:
      kind = StepKind::layer_norm;
      reads = emit.floats(x);
      eps = graph.real(id);
      results_as(3);
      break;
    case Op::layer_norm_gradient:
      kind = StepKind::layer_norm_gradient;
      reads = emit.floats(x);
      reads.push_back({});
      results_as(3);
      break;
    case Op::rms_norm:
      kind = StepKind::rms_norm;
      reads = emit.floats(x);
      eps = graph.real(id);
      results_as(2);
      break;
    case Op::rms_norm_gradient:
      kind = StepKind::rms_norm_gradient;
      reads = emit.floats(x);
      reads.push_back({});
      results_as(2);
      break;
    case Op::swiglu_gradient:
      kind = StepKind::swiglu_gradient;
      for (Value const& operand : x) reads.push_back(rows_of(emit, operand));
      results_as(2);
      break;
    case Op::attention:
      kind = StepKind::attention;
      reads = emit.floats(x);
      heads = integers[0];
      kv_heads = integers[1];
      value = graph.real(id);
      results_as(2);
      break;
    case Op::embedding_gradient:
      kind = StepKind::embedding_gradient;
      reads = {emit.contiguous(x[0], DType::int32), emit.contiguous(x[1], DType::float32), {}};
      if (x.size() > 2) reads[2] = emit.contiguous(x[2], DType::float32);
      vocabulary = integers[0];
      results_as(2);
      break;
    case Op::cross_entropy:
      kind = StepKind::cross_entropy;
      reads = {emit.contiguous(x[0], DType::float32), emit.contiguous(x[1], DType::int32)};
      ignored = static_cast<std::int32_t>(integers[0]);
      value = graph.real(id);
      results_as(3);
      break;
    case Op::linear_cross_entropy: {
      kind = StepKind::linear_cross_entropy;
      reads = {emit.contiguous(x[0], DType::float32), emit.contiguous(x[1], DType::float32),
               emit.contiguous(x[2], DType::int32)};
      ignored = static_cast<std::int32_t>(integers[0]);
      vocabulary = integers[1];
      value = graph.real(id);
      results_as(4);
      writes.push_back(
          emit.fresh(DType::float32, {kernel::linear_cross_entropy_workspace(x[2].shape.size(), x[1].shape[0])}));
      break;
    }
    default: emit.fail(ErrorKind::unavailable, "the executor has no step for this operation");
  }
  Step& step = emit.push(kind);
  step.reads = std::move(reads);
  step.writes = writes;
  step.value = value;
  step.eps = eps;
  step.heads = heads;
  step.kv_heads = kv_heads;
  step.vocabulary = vocabulary;
  step.ignored = ignored;
  if (is_product(graph.op(id))) step.product = product_type(graph, id);
  List<Value> results;
  for (int i = 0; i < graph.results(id); ++i) results.push_back(emit.as(writes[at(i)], graph.type(id, i).dtype));
  return results;
}

/// Copies that a later pass removes where the value can be computed in place.
inline void finish_output(Emitter& emit, Graph const& graph, Output const& output, Value const& value) {
  Buffer buffer;
  buffer.pool = Pool::output;
  buffer.bytes = value.shape.size() * static_cast<std::int64_t>(size_of(value.dtype));
  buffer.entry = static_cast<std::int32_t>(emit.list.outputs.size());
  BufferId const root = emit.list.add(buffer);
  emit.list.outputs.push_back({std::string(graph.text_of(output.name)), value.dtype, value.shape, root});
  Ref const whole = contiguous_ref(root, 0, value.dtype, value.shape);
  if (value.is_constant()) {
    Step& step = emit.push(StepKind::fill);
    step.value = value.number;
    step.writes = {whole};
    return;
  }
  List<Ref> const parts = value.is_stack() ? value.parts : List<Ref>{value.ref};
  Step& step = emit.push(StepKind::copy);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    step.reads.push_back(parts[i]);
    step.writes.push_back(value.is_stack() ? slice_ref(whole, static_cast<std::int64_t>(i)) : whole);
  }
}

inline void finish_update(Emitter& emit, Graph const& graph, Update const& update, Value const& target,
                          Value const& value) {
  if (value.dtype != target.dtype || !(value.shape == target.shape)) {
    emit.graph = &graph;
    emit.node = update.target;
    emit.fail(ErrorKind::shape,
              "an update has shape " + to_string(value.shape) + " and the field " + to_string(target.shape));
  }
  auto in_place = [&](Ref const& from, Ref const& to) {
    auto const home = emit.list.home(from.buffer);
    return from.contiguous() && home.root == to.buffer && home.offset + from.offset == to.offset &&
           from.buffer != to.buffer;
  };
  std::int64_t const parts = value.is_stack() ? target.shape[0] : 1;
  for (std::int64_t i = 0; i < parts; ++i) {
    Ref const to = value.is_stack() ? slice_ref(target.ref, i) : target.ref;
    if (value.is_constant()) {
      Step& step = emit.push(StepKind::fill);
      step.value = value.number;
      step.writes = {emit.fresh_over(to)};
      continue;
    }
    Ref const from = value.is_stack() ? value.parts[at(i)] : value.ref;
    if (from.buffer == to.buffer && from.offset == to.offset && from.contiguous()) continue;  // keeps its value
    if (in_place(from, to)) continue;
    Ref const written = emit.fresh_over(to);
    Step& step = emit.push(StepKind::copy);
    step.reads = {from};
    step.writes = {written};
  }
}

}  // namespace tutti::graph::lowering
