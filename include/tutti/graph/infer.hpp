// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What every operation requires of its operands, and the types of its results. The only place where shapes are
/// checked.

#include <tutti/graph/draft.hpp>
#include <tutti/graph/ir.hpp>

#include <algorithm>
#include <concepts>
#include <source_location>
#include <span>
#include <string>

namespace tutti::graph {

/// The shape without its last `count` axes.
constexpr Shape leading(Shape const& shape, int count = 1) {
  return Shape::of(shape.begin(), std::max(0, shape.rank() - count));
}
constexpr std::int64_t last(Shape const& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }
/// Leading extents, then one more.
constexpr Shape appended(Shape const& shape, std::int64_t extent) {
  List<std::int64_t> extents(shape.begin(), shape.end());
  extents.push_back(extent);
  return Shape(extents);
}
constexpr Shape without_first(Shape const& shape) { return Shape::of(shape.begin() + 1, shape.rank() - 1); }
constexpr Shape with_first(std::int64_t extent, Shape const& shape) {
  List<std::int64_t> extents{extent};
  extents.append(shape.begin(), shape.end());
  return Shape(extents);
}

namespace detail {

/// Looks at operands by position; everything a rule below needs.
struct Operands {
  Graph const& graph;
  Draft const& draft;
  std::source_location where;

  constexpr int count() const { return static_cast<int>(draft.operands.size()); }
  constexpr Type const& operator[](int i) const { return graph.type(draft.operands[static_cast<std::size_t>(i)]); }
  constexpr Shape const& shape(int i) const { return (*this)[i].shape; }
  constexpr DType dtype(int i) const { return (*this)[i].dtype; }
  constexpr std::int64_t integer(int i) const { return draft.integers[static_cast<std::size_t>(i)]; }
  constexpr double real(int i) const { return draft.reals[static_cast<std::size_t>(i)]; }

  constexpr void same_dtype(int first, int end) const {
    for (int i = first + 1; i < end; ++i)
      if (dtype(i) != dtype(first))
        refuse(where, draft.op, "operands differ in dtype; convert one of them", dtype(first), dtype(i));
  }
  constexpr void same_shape(int first, int end) const {
    for (int i = first + 1; i < end; ++i)
      if (shape(i) != shape(first))
        refuse(where, draft.op, "operands differ in shape; broadcast or reshape one of them", shape(first), shape(i));
  }
  constexpr void floating(int i) const {
    if (!is_floating(dtype(i)))
      refuse(where, draft.op, "the operand must be of a floating type; convert it", dtype(i), DType::float32);
  }
  constexpr void indices(int i) const {
    if (!is_integer(dtype(i)))
      refuse(where, draft.op, "indices must be integers; convert them", dtype(i), DType::int32);
  }
  constexpr void scalars(int first, int end) const {
    for (int i = first; i < end; ++i)
      if (shape(i).rank() != 0) refuse(where, draft.op, "this operand must be a scalar", shape(i));
  }
  constexpr void vector_of(int i, std::int64_t extent, Shape const& against) const {
    if (shape(i).rank() != 1 || shape(i)[0] != extent)
      refuse(where, draft.op, "the vector's length must be the last extent of the tensor that it belongs to", against,
             shape(i));
  }
};

/// The state of a result along one axis: varying wins over replicated; partial passes only through what is linear in
/// it.
constexpr Replication combined(Operands const& in, MeshAxis axis) {
  bool varying = false;
  int partial = 0;
  for (int i = 0; i < in.count(); ++i) {
    varying = varying || in[i].replication[axis] == Replication::varying;
    partial += in[i].replication[axis] == Replication::partial;
  }
  if (partial == 0) return varying ? Replication::varying : Replication::replicated;
  Linearity const linearity = info(in.draft.op).linearity;
  bool const linear =
      linearity == Linearity::any || (linearity == Linearity::every && partial == in.count()) ||
      (linearity == Linearity::one && partial == 1) ||
      (linearity == Linearity::first && partial == 1 && in[0].replication[axis] == Replication::partial);
  if (!linear || varying) {
    if (axis == MeshAxis::data)
      refuse(in.where, in.draft.op, ErrorKind::communication,
             "an operand is only this rank's addend of a pending sum; all_reduce it before this operation");
    refuse(in.where, in.draft.op, ErrorKind::communication,
           "an operand is only this rank's addend of a pending sum along the " + std::string(graph::name(axis)) +
               " axis; all_reduce it there before this operation");
  }
  return Replication::partial;
}
constexpr Replications combined(Operands const& in) {
  int bits = 0;
  for (int i = 0; i < in.count(); ++i) bits |= in[i].replication.bits();
  Replications result;
  if (bits == 0) return result;
  for (int axis = 0; axis < mesh_axes; ++axis)
    if ((bits >> 2 * axis & 3) != 0)
      result = result.with(static_cast<MeshAxis>(axis), combined(in, static_cast<MeshAxis>(axis)));
  return result;
}

inline constexpr char axes_rule[] = "every axis must stand once and be below the rank of the operand";
constexpr Shape reduced(Operands const& in, std::span<std::int64_t const> axes) {
  List<std::int64_t> kept;
  for (int axis = 0; axis < in.shape(0).rank(); ++axis)
    if (!contains(axes, axis)) kept.push_back(in.shape(0)[axis]);
  std::int64_t previous = -1;
  for (std::int64_t axis : axes) {
    if (axis <= previous || axis >= in.shape(0).rank())
      refuse(in.where, in.draft.op, axes_rule, in.shape(0));
    previous = axis;
  }
  return Shape(kept);
}

/// Of products: the type to which operands are rounded.
constexpr void rounded_operands(Operands const& in) {
  DType const product = product_type(in.draft.op, in.draft.integers);
  if (product == DType::float32) return;
  if (product != DType::bfloat16)
    refuse(in.where, in.draft.op, "the operands of a product may be rounded to bfloat16 alone", product,
           DType::bfloat16);
  if (in.dtype(0) != DType::float32)
    refuse(in.where, in.draft.op, "only float32 operands are rounded for a product", in.dtype(0), DType::float32);
}

constexpr Shape dot_result(Operands const& in) {
  auto const& values = in.draft.integers;
  auto const batch = static_cast<int>(values[0]), contracted = static_cast<int>(values[1]);
  Shape const &a = in.shape(0), &b = in.shape(1);
  int const extra = static_cast<int>(values.size()) - (2 + 2 * batch + 2 * contracted);
  if (extra != 0 && extra != 1)
    refuse(in.where, in.draft.op, "both operands need as many batch and contracted axes", a, b);
  std::array<bool, Shape::max_rank> used_a{}, used_b{};
  List<std::int64_t> extents;
  for (int i = 0; i < batch + contracted; ++i) {
    int const at = i < batch ? 2 + i : 2 + batch + i;
    int const step = i < batch ? batch : contracted;
    auto const axis_a = values[static_cast<std::size_t>(at)], axis_b = values[static_cast<std::size_t>(at + step)];
    if (axis_a < 0 || axis_a >= a.rank() || axis_b < 0 || axis_b >= b.rank() ||
        used_a[static_cast<std::size_t>(axis_a)] || used_b[static_cast<std::size_t>(axis_b)])
      refuse(in.where, in.draft.op, "an axis is named twice or is not below its operand's rank", a, b);
    used_a[static_cast<std::size_t>(axis_a)] = used_b[static_cast<std::size_t>(axis_b)] = true;
    if (a[static_cast<int>(axis_a)] != b[static_cast<int>(axis_b)])
      refuse(in.where, in.draft.op, "paired axes differ in extent", a, b);
    if (i < batch) extents.push_back(a[static_cast<int>(axis_a)]);
  }
  for (int axis = 0; axis < a.rank(); ++axis)
    if (!used_a[static_cast<std::size_t>(axis)]) extents.push_back(a[axis]);
  for (int axis = 0; axis < b.rank(); ++axis)
    if (!used_b[static_cast<std::size_t>(axis)]) extents.push_back(b[axis]);
  return Shape(extents, in.where);
}

constexpr Shape sliced(Operands const& in) {
  Shape const& x = in.shape(0);
  int const rank = x.rank();
  if (static_cast<int>(in.draft.integers.size()) != 3 * rank)
    refuse(in.where, in.draft.op, "one start, limit and stride per axis are needed", x);
  Shape out = x;
  for (int axis = 0; axis < rank; ++axis) {
    std::int64_t const start = in.integer(axis), limit = in.integer(rank + axis), stride = in.integer(2 * rank + axis);
    if (start < 0 || limit < start || limit > x[axis] || stride < 1)
      refuse(in.where, in.draft.op, "starts and limits must lie within the operand, strides be positive", x);
    out = out.with(axis, (limit - start + stride - 1) / stride);
  }
  return out;
}

constexpr Shape padded(Operands const& in) {
  Shape const& x = in.shape(0);
  int const rank = x.rank();
  if (static_cast<int>(in.draft.integers.size()) != 3 * rank)
    refuse(in.where, in.draft.op, "one low, high and interior padding per axis are needed", x);
  Shape out = x;
  for (int axis = 0; axis < rank; ++axis) {
    std::int64_t const low = in.integer(axis), high = in.integer(rank + axis), interior = in.integer(2 * rank + axis);
    if (low < 0 || high < 0 || interior < 0)
      refuse(in.where, in.draft.op, "padding must not be negative; use slice", x);
    out = out.with(axis, low + x[axis] + (x[axis] > 0 ? (x[axis] - 1) * interior : 0) + high);
  }
  return out;
}

constexpr Shape concatenated(Operands const& in) {
  auto const axis = static_cast<int>(in.integer(0));
  if (in.count() == 0) refuse(in.where, in.draft.op, ErrorKind::invalid_argument, "there is nothing to concatenate");
  if (axis < 0 || axis >= in.shape(0).rank())
    refuse(in.where, in.draft.op, "the axis is not below the rank", in.shape(0));
  std::int64_t total = 0;
  for (int i = 0; i < in.count(); ++i) {
    if (in.shape(i).rank() != in.shape(0).rank() || in.shape(i).with(axis, 0) != in.shape(0).with(axis, 0))
      refuse(in.where, in.draft.op, "tensors may differ along the concatenated axis only", in.shape(0), in.shape(i));
    total += in.shape(i)[axis];
  }
  return in.shape(0).with(axis, total);
}

/// Of a composite: graph/infer_composites.hpp.
constexpr Shape composite_shape(Operands const& in, List<Type>& more);

}  // namespace detail

/// Types of the results of `draft` over the nodes of `graph`: graph/infer_types.hpp.
/// Errors    tutti::Error of kind shape, dtype or communication with the operands' shapes, at `where`.
template <std::same_as<Draft> D>
constexpr List<Type> infer(Graph const& graph, D const& draft, std::source_location where);

}  // namespace tutti::graph

// Rules are templates, declared above and defined behind the builder, with which functions on handles are written.
#include <tutti/graph/builder.hpp>
