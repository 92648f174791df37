// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lowering of what moves, sums or multiplies whole arrays: pads, concatenations, reductions and matrix products.

#include <tutti/core/list.hpp>
#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::graph::lowering {

inline Value lower_pad(Emitter& emit, Graph const& graph, Id id, Value const& x) {
  Type const& type = graph.type(id);
  auto const integers = graph.integers(id);
  std::size_t const rank = at(type.shape.rank());
  Ref const source = emit.ref(x), whole = emit.fresh(type.dtype, type.shape);
  Ref box = whole;
  box.shape = source.shape;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    box.offset += integers[axis] * whole.strides[axis] * static_cast<std::int64_t>(size_of(type.dtype));
    box.strides[axis] *= integers[2 * rank + axis] + 1;
  }
  if (source.shape.size() == 0) box.offset = 0;
  Step& step = emit.push(StepKind::copy);
  step.value = graph.real(id);
  step.reads = {source};
  step.writes = {box, whole};
  return view_value(whole);
}

inline Value lower_concatenate(Emitter& emit, int axis, List<Value> const& x, Type const& type) {
  List<Ref> sources;
  for (Value const& value : x) sources.push_back(emit.ref(value));
  Ref const whole = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(StepKind::copy);
  std::int64_t begin = 0;
  for (Ref const& source : sources) {
    if (source.shape.size() != 0) {
      Ref box = whole;
      box.shape = source.shape;
      box.offset += begin * whole.strides[at(axis)] * static_cast<std::int64_t>(size_of(type.dtype));
      step.reads.push_back(source);
      step.writes.push_back(box);
    }
    begin += source.shape[axis];
  }
  if (step.writes.empty()) step.writes.push_back(whole);
  return view_value(whole);
}

inline Value lower_reduce(Emitter& emit, Graph const& graph, Id id, Value const& x) {
  Type const& type = graph.type(id);
  std::uint32_t axes = 0;
  for (std::int64_t axis : graph.integers(id)) axes |= 1u << axis;
  Ref const source = emit.ref(x), y = emit.fresh(type.dtype, type.shape);
  auto const count = static_cast<int>(graph.integers(id).size());
  bool const leading = axes == (1u << count) - 1 && count > 0 && count < source.shape.rank();
  if (graph.op(id) == Op::reduce_sum && leading && type.dtype == DType::float32 && source.contiguous() &&
      source.shape.size() != 0) {
    std::int64_t const columns = type.shape.size();
    Step& step = emit.push(StepKind::column_sum);
    step.reads = {contiguous_ref(source.buffer, source.offset, source.dtype, {source.shape.size() / columns, columns})};
    step.writes = {y};
    return view_value(y);
  }
  Step& step = emit.push(StepKind::reduce);
  step.axes = axes;
  step.maximum = graph.op(id) == Op::reduce_max;
  step.reads = {source};
  step.writes = {y};
  return view_value(y);
}

/// x [, base]
inline Value lower_square_sum(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  Type const& type = graph.type(id);
  List<Ref> reads{Ref{}};
  if (x.size() > 1) reads[0] = emit.contiguous(x[1], DType::float64);
  for (Ref const& part : emit.parts_of(x[0])) {
    Ref const dense = emit.contiguous(part);
    reads.push_back(dense.dtype == DType::float32 ? dense : emit.converted(dense, DType::float32));
  }
  Ref const y = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(StepKind::square_sum);
  step.reads = reads;
  step.writes = {y};
  return view_value(y);
}

/// x (..., I), weight (O, I) [, bias (O)]
inline Value lower_linear(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  Type const& type = graph.type(id);
  List<Ref> operands = emit.floats(x);
  std::int64_t const inner = x[0].shape[x[0].shape.rank() - 1], columns = x[1].shape[0];
  std::int64_t const rows = inner == 0 ? (columns == 0 ? 0 : type.shape.size() / columns) : x[0].shape.size() / inner;
  Ref a = contiguous_ref(operands[0].buffer, operands[0].offset, DType::float32, {rows, inner});
  Ref b = contiguous_ref(operands[1].buffer, operands[1].offset, DType::float32, {inner, columns});
  b.strides[0] = 1;
  b.strides[1] = inner;
  Ref const y = emit.fresh(DType::float32, type.shape);
  Step& step = emit.push(StepKind::gemm);
  step.product = product_type(graph, id);
  step.reads = {a, b, operands.size() > 2 ? operands[2] : Ref{}, {}, {}};
  step.writes = {contiguous_ref(y.buffer, 0, DType::float32, {rows, columns}), {}};
  return emit.as(y, type.dtype);
}

/// An operand as (batch..., rows, columns), with one of the last two strides 1; copied when its axes do not collapse.
inline Ref matrix_of(Emitter& emit, Value const& value, std::span<std::int64_t const> batch, std::span<int const> rows,
                     std::span<int const> columns) {
  Ref const source = emit.ref(value);
  List<std::int64_t> extents;
  Ref result = source;
  result.strides = {};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    extents.push_back(source.shape[static_cast<int>(batch[i])]);
    result.strides[i] = source.strides[at(batch[i])];
  }
  auto row = collapse(source, rows), column = collapse(source, columns);
  if (row && column && row->extent == 1 && column->stride != 1) row->stride = 1;
  if (row && column && column->extent == 1 && row->stride != 1) column->stride = 1;
  if (!row || !column || (row->stride != 1 && column->stride != 1) || row->stride == 0 || column->stride == 0) {
    List<std::int64_t> order(batch.begin(), batch.end()), shape;
    order.append(rows.begin(), rows.end());
    order.append(columns.begin(), columns.end());
    for (std::int64_t axis : order) shape.push_back(source.shape[static_cast<int>(axis)]);
    Ref const dense =
        emit.copied(emit.transposed(view_value(source), order, Shape(shape)).ref);
    Axis r{1, 1}, c{1, 1};
    for (int axis : rows) r.extent *= source.shape[axis];
    for (int axis : columns) c.extent *= source.shape[axis];
    extents.push_back(r.extent);
    extents.push_back(c.extent);
    return contiguous_ref(dense.buffer, 0, dense.dtype, Shape(extents));
  }
  extents.push_back(row->extent);
  extents.push_back(column->extent);
  result.strides[batch.size()] = row->stride;
  result.strides[batch.size() + 1] = column->stride;
  result.shape = Shape(extents);
  return result;
}

inline Value lower_dot(Emitter& emit, Graph const& graph, Id id, Value const& a, Value const& b) {
  Type const& type = graph.type(id);
  DotShape const dims = dot_shape(graph, id);
  auto free_axes = [](Shape const& shape, std::span<std::int64_t const> batch, std::span<std::int64_t const> contract) {
    List<int> axes;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (!graph::detail::contains(batch, axis) && !graph::detail::contains(contract, axis)) axes.push_back(axis);
    return axes;
  };
  List<int> const contract_a(dims.contract_a.begin(), dims.contract_a.end()),
      contract_b(dims.contract_b.begin(), dims.contract_b.end());
  Ref const left = matrix_of(emit, a, dims.batch_a, free_axes(a.shape, dims.batch_a, dims.contract_a), contract_a);
  Ref const right = matrix_of(emit, b, dims.batch_b, contract_b, free_axes(b.shape, dims.batch_b, dims.contract_b));
  List<std::int64_t> extents(left.shape.begin(), left.shape.end() - 1);
  extents.push_back(right.shape[right.shape.rank() - 1]);
  Ref const y = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(StepKind::gemm);
  step.product = product_type(graph, id);
  step.reads = {left, right, {}, {}, {}};
  step.writes = {contiguous_ref(y.buffer, 0, type.dtype, Shape(extents)), {}};
  return view_value(y);
}

}  // namespace tutti::graph::lowering
