// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The vocabulary of model functions: operators and primitives on handles. graph/op.hpp says what each computes;
/// functions of elements stand in graph/op/. Integers wrap modulo 2^bits.

#include <tutti/graph/infer_types.hpp>
#include <tutti/graph/op/table.hpp>

#include <algorithm>

namespace tutti::graph {

/// The value without a gradient.
constexpr Var stop_gradient(Var x, Where where = Where::current()) {
  return detail::unary(Op::stop_gradient, x, where);
}
/// The value, computed anew where this stands: never merged with an equal one, and what reads it is not fused with what
/// made it.
constexpr Var barrier(Var x, Where where = Where::current()) {
  Builder& builder = detail::home(x, where);
  return detail::emit(builder, draft(Op::barrier, {x.id}, {builder.graph().size()}), where);
}

/// NaN where either is. Ties: each side gets half the gradient.
constexpr Var minimum(Operand a, Operand b) {
  detail::Pair const pair = detail::matched(Op::maximum, a, b);
  Operand const x(pair.a, a.where), y(pair.b, a.where);
  if (!is_floating(pair.a.dtype())) return select(less(x, y), x, y);  // not every integer can be negated
  return -detail::binary(Op::maximum, Operand(-pair.a, a.where), Operand(-pair.b, a.where));
}

constexpr Var reshape(Var x, Shape const& shape, Where where = Where::current()) {
  Builder& builder = detail::home(x, where);
  if (x.shape() == shape) return x;
  if (auto const value = detail::constant_value(x); value && x.shape().size() == shape.size())
    return constant(builder, *value, shape, x.dtype(), where);
  return detail::emit(builder, draft(Op::reshape, {x.id}, {}, {}, {x.dtype(), {}, shape}), where);
}
constexpr Var transpose(Var x, List<std::int64_t> permutation, Where where = Where::current()) {
  bool identity = static_cast<int>(permutation.size()) == x.rank(where);
  for (std::size_t i = 0; i < permutation.size(); ++i)
    identity = identity && permutation[i] == static_cast<std::int64_t>(i);
  if (identity) return x;
  return detail::emit(detail::home(x, where), draft(Op::transpose, {x.id}, std::move(permutation)), where);
}
constexpr Var slice(Var x, List<std::int64_t> starts, List<std::int64_t> limits, List<std::int64_t> strides = {},
                    Where where = Where::current()) {
  if (strides.empty()) strides.assign(starts.size(), 1);
  starts.append(limits.begin(), limits.end());
  starts.append(strides.begin(), strides.end());
  return detail::emit(detail::home(x, where), draft(Op::slice, {x.id}, std::move(starts)), where);
}
/// `low` before, `high` behind and `interior` between the elements along each axis, filled with `value`.
constexpr Var pad(Var x, List<std::int64_t> low, List<std::int64_t> high, List<std::int64_t> interior = {},
                  double value = 0, Where where = Where::current()) {
  detail::require_holds(Op::pad, x.dtype(where), value, where);
  if (interior.empty()) interior.assign(low.size(), 0);
  low.append(high.begin(), high.end());
  low.append(interior.begin(), interior.end());
  return detail::emit(detail::home(x, where), draft(Op::pad, {x.id}, std::move(low), {value}), where);
}
constexpr Var concatenate(std::initializer_list<Var> parts, int axis, Where where = Where::current()) {
  Builder* builder = nullptr;
  for (Var part : parts) builder = &detail::home(part, Var{builder, none}, {}, where);
  List<Id> ids;
  for (Var part : parts) ids.push_back(builder->adopt(part, where));
  if (builder == nullptr)
    refuse(where, Op::concatenate, ErrorKind::invalid_argument, "there is nothing to concatenate");
  return detail::emit(*builder, draft(Op::concatenate, std::move(ids), {axis}), where);
}

/// Whether a reduction keeps its axes, with an extent of 1, so that the result broadcasts against what was reduced.
enum class KeepAxes : bool { no, yes };

/// Axes in any order; negative ones count from the end. Errors: shape, for an axis that is not there or stands twice.
constexpr Var reduce(Op op, Var x, List<std::int64_t> axes, Where where, KeepAxes keep = KeepAxes::no) {
  Shape kept = x.shape(where);
  for (std::int64_t& axis : axes) {
    axis += axis < 0 ? kept.rank() : 0;
    if (keep == KeepAxes::yes && axis >= 0 && axis < kept.rank()) kept = kept.with(static_cast<int>(axis), 1);
  }
  std::sort(axes.begin(), axes.end());
  if (axes.empty()) return x;
  Var const reduced = detail::emit(detail::home(x, where), draft(op, {x.id}, std::move(axes)), where);
  return keep == KeepAxes::yes ? reshape(reduced, kept, where) : reduced;
}
constexpr Var reduce_sum(Var x, Axes axes, KeepAxes keep, Where where = Where::current()) {
  return reduce(Op::reduce_sum, x, detail::listed(axes), where, keep);
}
constexpr Var reduce_sum(Var x, Axes axes, Where where = Where::current()) {
  return reduce_sum(x, axes, KeepAxes::no, where);
}
/// Ties share the gradient evenly.
constexpr Var reduce_max(Var x, Axes axes, KeepAxes keep, Where where = Where::current()) {
  return reduce(Op::reduce_max, x, detail::listed(axes), where, keep);
}
constexpr Var reduce_max(Var x, Axes axes, Where where = Where::current()) {
  return reduce_max(x, axes, KeepAxes::no, where);
}
namespace detail {
/// What functions made of several reductions refuse in their own name. Errors: shape, dtype.
constexpr void require_floating(char const* who, Var x, Where where) {
  if (!is_floating(x.dtype(where)))
    refuse(where, who, "the operand must be of a floating type; convert it", x.dtype(), DType::float32);
}
constexpr void require_axes(char const* who, Var x, Axes axes, Where where) {
  Shape const shape = x.shape(where);
  List<std::int64_t> places = listed(axes);
  for (std::int64_t& axis : places) axis += axis < 0 ? shape.rank() : 0;
  std::sort(places.begin(), places.end());
  std::int64_t previous = -1;
  for (std::int64_t const axis : places) {
    if (axis <= previous || axis >= shape.rank()) refuse(where, who, axes_rule, shape);
    previous = axis;
  }
}
}  // namespace detail

/// Sums in the type of x, which must be floating: divided by the number of what was summed. Zero for no elements.
constexpr Var reduce_mean(Var x, Axes axes, KeepAxes keep, Where where = Where::current()) {
  detail::require_floating("reduce_mean", x, where);
  detail::require_axes("reduce_mean", x, axes, where);
  Var const sum = reduce_sum(x, axes, keep, where);
  std::int64_t const sums = sum.shape().size(), count = sums > 0 ? x.shape().size() / sums : 0;
  return Operand(sum, where) * (1.0 / static_cast<double>(count > 0 ? count : 1));
}
constexpr Var reduce_mean(Var x, Axes axes, Where where = Where::current()) {
  return reduce_mean(x, axes, KeepAxes::no, where);
}
constexpr Var sum_all(Var x, Where where = Where::current()) {
  List<std::int64_t> axes;
  for (int axis = 0; axis < x.rank(where); ++axis) axes.push_back(axis);
  return reduce(Op::reduce_sum, x, std::move(axes), where);
}
constexpr Var mean_all(Var x, Where where = Where::current()) {
  detail::require_floating("mean_all", x, where);
  std::int64_t const count = x.shape(where).size();
  return Operand(sum_all(x, where), where) * (1.0 / static_cast<double>(count > 0 ? count : 1));
}

namespace detail {
/// dot_general with operands rounded to `product`.
constexpr Var dot_general_of(DType product, Var a, Var b, List<std::int64_t> contract_a, List<std::int64_t> contract_b,
                             List<std::int64_t> batch_a = {}, List<std::int64_t> batch_b = {},
                             Where where = Where::current()) {
  Builder& builder = home(a, b, {}, where);
  List<std::int64_t> values{static_cast<std::int64_t>(batch_a.size()), static_cast<std::int64_t>(contract_a.size())};
  for (auto const* list : {&batch_a, &batch_b, &contract_a, &contract_b}) values.append(list->begin(), list->end());
  if (product != DType::float32) values.push_back(static_cast<std::int64_t>(product));
  Id const x = builder.adopt(a, where), y = builder.adopt(b, where);
  return emit(builder, draft(Op::dot_general, {x, y}, std::move(values)), where);
}
}  // namespace detail

/// Result: batch axes, free axes of a, free axes of b.
constexpr Var dot_general(Var a, Var b, List<std::int64_t> contract_a, List<std::int64_t> contract_b,
                          List<std::int64_t> batch_a = {}, List<std::int64_t> batch_b = {},
                          Where where = Where::current()) {
  return detail::dot_general_of(DType::float32, a, b, std::move(contract_a), std::move(contract_b), std::move(batch_a),
                                std::move(batch_b), where);
}

namespace detail {
// Builder::emit stands before the definition of what it calls. Clang evaluates only those function templates in
// constant expressions that are named again behind their definition.
inline constexpr auto* inferred_here = &infer<Draft>;
}  // namespace detail

}  // namespace tutti::graph
