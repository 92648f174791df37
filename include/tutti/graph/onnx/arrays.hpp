// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Constants, operations on shapes, reductions, products and gathers as ONNX.
///
/// 16-bit numbers are summed in float32, and operands of products that a graph rounds to bfloat16 are rounded.
/// Indices outside of a table: the executor and onnxruntime refuse them.

#include <tutti/graph/onnx/call.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace tutti::graph::onnx {

inline bool is_half(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }

/// Range makes int64 and float64 numbers; others are cast.
inline Value iota(Call const& e) {
  Extents const shape = e.shape();
  if (shape.empty()) return e.out.number(e.dtype(), {}, 0);
  auto const axis = static_cast<std::size_t>(e.integer());
  List<std::int64_t> others;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (i != axis) others.push_back(static_cast<std::int64_t>(i));
  std::string const count = e.out.add("Squeeze", {e.out.extent(shape[axis]), e.out.list({0})}),
                    first = e.out.number(DType::int64, 0), step = e.out.number(DType::int64, 1);
  Value x{e.out.add("Range", {first, count, step}), DType::int64, shape, List<bool>(shape.size(), true)};
  if (!others.empty()) x.name = e.out.add("Unsqueeze", {x.name, e.out.list(others)});
  x.spread[axis] = false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i].is(1)) x.spread[i] = false;
  return e.cast(x, e.dtype());
}

inline Value transpose(Call const& e) {
  Value const& x = e.in();
  if (x.lone) return {x.name, x.dtype, e.shape(), {}, true};
  List<std::int64_t> permutation;
  List<bool> spread;
  for (int i = 0; i < x.rank(); ++i) {
    permutation.push_back(e.integer(i));
    spread.push_back(x.spread[static_cast<std::size_t>(permutation.back())]);
  }
  return {e.out.add("Transpose", {x.name}, {Writer::integers("perm", permutation)}), x.dtype, e.shape(), spread};
}

/// No elements are copied: axes are put between, and the rest is broadcasting.
inline Value broadcast(Call const& e) {
  Value x = e.in();
  Extents const shape = e.shape(), from = x.shape;
  x.shape = shape;
  if (x.lone) return x;
  if (from.empty()) return {x.name, x.dtype, shape, {}, true};
  List<bool> spread(shape.size(), true);
  List<std::int64_t> added;
  for (std::size_t i = 0, next = 0; i < shape.size(); ++i) {
    if (next == from.size() || e.integer(static_cast<int>(next)) != static_cast<std::int64_t>(i)) {
      added.push_back(static_cast<std::int64_t>(i));
      spread[i] = !shape[i].is(1);
      continue;
    }
    spread[i] = x.spread[next] || !(from[next] == shape[i]);
    ++next;
  }
  for (std::size_t i = 1; i < from.size(); ++i)
    if (e.integer(static_cast<int>(i)) <= e.integer(static_cast<int>(i) - 1))
      refuse(e.graph(), e.id, ErrorKind::unavailable,
             "a broadcast that exchanges axes has no ONNX form here; transpose before it");
  if (!added.empty()) x.name = e.out.add("Unsqueeze", {x.name, e.out.list(added)});
  x.spread = spread;
  return x;
}

inline Value slice(Call const& e) {
  if (e.in().lone) return {e.in().name, e.dtype(), e.shape(), {}, true};
  Value const x = e.out.full(e.in());
  int const rank = x.rank();
  List<std::int64_t> axes, starts, steps;
  Extents ends;
  for (int axis = 0; axis < rank; ++axis) {
    Extent const start = e.twin.integer(e.id, axis), end = e.twin.integer(e.id, rank + axis);
    std::int64_t const step = e.integer(2 * rank + axis);
    Extent const& whole = x.shape[static_cast<std::size_t>(axis)];
    if (start.is(0) && end == whole && step == 1) continue;
    axes.push_back(axis);
    starts.push_back(e.integer(axis));
    steps.push_back(step);
    ends.push_back(end == whole ? Extent{std::numeric_limits<std::int64_t>::max(),
                                         std::numeric_limits<std::int64_t>::max()}
                                : end);
  }
  if (axes.empty()) return x;
  return {e.out.add("Slice", {x.name, e.out.list(starts), e.out.shape(ends), e.out.list(axes), e.out.list(steps)}),
          x.dtype, e.shape(), List<bool>(static_cast<std::size_t>(rank), false)};
}

inline Value pad(Call const& e) {
  Value const x = e.out.full(e.in());
  auto const rank = x.rank();
  List<std::int64_t> ends;
  for (int i = 0; i < 3 * rank; ++i) {
    std::int64_t const by = e.integer(i);
    if (i < 2 * rank) ends.push_back(by);
    else if (by != 0)
      refuse(e.graph(), e.id, ErrorKind::unavailable, "padding between elements has no ONNX form; reshape around it");
  }
  return {e.out.add("Pad", {x.name, e.out.list(ends), e.out.number(x.dtype, e.real())}), x.dtype, e.shape(),
          List<bool>(x.shape.size(), false)};
}

inline Value concatenate(Call const& e) {
  List<std::string> inputs;
  for (Value const& operand : e.operands) inputs.push_back(e.out.full(operand).name);
  Extents const shape = e.shape();
  return {e.out.add("Concat", std::move(inputs), {Writer::integer("axis", e.integer())}), e.dtype(), shape,
          List<bool>(shape.size(), false)};
}

inline Value reduce(Call const& e) {
  auto const axes = e.graph().integers(e.id);
  if (axes.empty()) return e.in();
  bool const sums = e.graph().op(e.id) == Op::reduce_sum;
  DType const dtype = e.dtype();
  Value x = e.out.full(e.in());
  if (sums && is_half(dtype)) x = e.cast(x, DType::float32);
  else if (!is_floating(dtype) && size_of(dtype) < 4) x = e.cast(x, DType::int64);  // ONNX has no others
  List<std::int64_t> const dropped(axes.begin(), axes.end());
  Extents const shape = e.shape();
  std::string name;
  if (sums) {
    name = e.out.add("ReduceSum", {x.name, e.out.list(dropped)}, {Writer::integer("keepdims", 0)});
  } else {  // its axes became an operand later than opset 17
    name = e.out.add("ReduceMax", {x.name}, {Writer::integers("axes", dropped), Writer::integer("keepdims", 0)});
  }
  return e.cast({std::move(name), x.dtype, shape, List<bool>(shape.size(), false), false}, dtype);
}

/// a x^T of any axes: MatMul where one axis is contracted and b has one more than those of the batch, else Einsum.
inline Value dot_general(Call const& e) {
  DotShape const d = dot_shape(e.graph(), e.id);
  DType const product = product_type(e.graph(), e.id), dtype = e.dtype();
  Extents const shape = e.shape();
  auto const operand = [&](int i) {
    Value x = e.out.full(e.in(i));
    if (product != DType::float32) x = e.cast(e.cast(x, product), x.dtype);
    return is_half(dtype) ? e.cast(x, DType::float32) : x;
  };
  Value const a = operand(0), b = operand(1);
  DType const wide = a.dtype;
  std::size_t const batch = d.batch_a.size();
  auto const result = [&](std::string name) {
    return e.cast({std::move(name), wide, shape, List<bool>(shape.size(), false), false}, dtype);
  };
  // Axes of the batch, then those that are free, then what is contracted; of b the last two groups the other way.
  auto const order = [](int rank, auto const& batches, auto const& contracted, bool contracted_first) {
    List<std::int64_t> axes(batches.begin(), batches.end()), free;
    for (int axis = 0; axis < rank; ++axis)
      if (!graph::detail::contains(batches, axis) && !graph::detail::contains(contracted, axis)) free.push_back(axis);
    if (contracted_first) axes.append(contracted.begin(), contracted.end());
    axes.append(free.begin(), free.end());
    if (!contracted_first) axes.append(contracted.begin(), contracted.end());
    return axes;
  };
  auto const turned = [&](Value const& x, List<std::int64_t> const& axes) {
    bool same = true;
    for (std::size_t i = 0; i < axes.size(); ++i) same = same && axes[i] == static_cast<std::int64_t>(i);
    return same ? x.name : e.out.add("Transpose", {x.name}, {Writer::integers("perm", axes)});
  };
  std::size_t const free_a = a.shape.size() - batch - d.contract_a.size(),
                    free_b = b.shape.size() - batch - d.contract_b.size();
  if (d.contract_a.size() == 1 && free_b == 1 && (batch == 0 ? free_a >= 1 : free_a == 1))
    return result(e.out.add("MatMul", {turned(a, order(a.rank(), d.batch_a, d.contract_a, false)),
                                       turned(b, order(b.rank(), d.batch_b, d.contract_b, true))}));
  std::string letters_a(a.shape.size(), '?'), letters_b(b.shape.size(), '?'), out;
  char next = 'a';
  for (std::size_t i = 0; i < batch; ++i, ++next) {
    letters_a[static_cast<std::size_t>(d.batch_a[i])] = letters_b[static_cast<std::size_t>(d.batch_b[i])] = next;
    out += next;
  }
  for (std::size_t i = 0; i < d.contract_a.size(); ++i, ++next)
    letters_a[static_cast<std::size_t>(d.contract_a[i])] = letters_b[static_cast<std::size_t>(d.contract_b[i])] = next;
  for (std::string* letters : {&letters_a, &letters_b})
    for (char& letter : *letters)
      if (letter == '?') out += letter = next++;
  return result(e.out.add("Einsum", {a.name, b.name},
                          {Writer::text("equation", concat(letters_a, ",", letters_b, "->", out))}));
}

inline Value gather(Call const& e) {
  Value const table = e.out.full(e.in(0)), indices = e.out.full(e.in(1));
  bool const index = indices.dtype == DType::int32 || indices.dtype == DType::int64;
  Extents const shape = e.shape();
  return {e.out.add("Gather", {table.name, index ? indices.name : e.cast(indices, DType::int64).name},
                    {Writer::integer("axis", 0)}),
          e.dtype(), shape, List<bool>(shape.size(), false)};
}

}  // namespace tutti::graph::onnx
