// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Softmax and what belongs to it, in primitives, along any axis. For a loss over a vocabulary `cross_entropy` and
/// `linear_cross_entropy` are faster and need less memory: they are kernels.

#include <tutti/graph/ops.hpp>

namespace tutti::graph {

namespace detail {
/// Errors, in the name of who was called: dtype, unless x is floating; shape, for an axis that is not there.
constexpr void require_probabilities(char const* who, Var x, std::int64_t axis, Where where) {
  require_floating(who, x, where);
  require_axes(who, x, {axis}, where);
}
/// x less its largest element along the axis: exponentials of it do not overflow. The largest has no gradient of its
/// own, since what follows does not depend on it.
constexpr Var less_largest(Var x, std::int64_t axis, Where where) {
  return Operand(x, where) - Operand(stop_gradient(reduce_max(x, {axis}, KeepAxes::yes, where), where), where);
}
}  // namespace detail

/// log(sum(exp(x))) along the axis, which is dropped or kept.
constexpr Var log_sum_exp(Var x, std::int64_t axis = -1, KeepAxes keep = KeepAxes::no,
                          Where where = Where::current()) {
  detail::require_probabilities("log_sum_exp", x, axis, where);
  Var const largest = stop_gradient(reduce_max(x, {axis}, keep, where), where);
  Var const sum = reduce_sum(exp(detail::less_largest(x, axis, where), where), {axis}, keep, where);
  return Operand(log(sum, where), where) + Operand(largest, where);
}
/// exp(x) / sum(exp(x)) along the axis, of x's shape.
constexpr Var softmax(Var x, std::int64_t axis = -1, Where where = Where::current()) {
  detail::require_probabilities("softmax", x, axis, where);
  Var const e = exp(detail::less_largest(x, axis, where), where);
  return Operand(e, where) / Operand(reduce_sum(e, {axis}, KeepAxes::yes, where), where);
}
/// log(softmax(x)), also where softmax(x) is too small for its type.
constexpr Var log_softmax(Var x, std::int64_t axis = -1, Where where = Where::current()) {
  detail::require_probabilities("log_softmax", x, axis, where);
  Var const shifted = detail::less_largest(x, axis, where);
  Var const sum = reduce_sum(exp(shifted, where), {axis}, KeepAxes::yes, where);
  return Operand(shifted, where) - Operand(log(sum, where), where);
}
/// Integers (...) as rows (..., classes): 1 in the place of the integer, else 0. All 0 where it is none of the classes.
/// Has no gradient. Errors: dtype, for values that are no integers; invalid_argument, for fewer than one class.
constexpr Var one_hot(Var indices, std::int64_t classes, DType dtype = DType::float32, Where where = Where::current()) {
  Builder& builder = detail::home(indices, where);
  if (is_floating(indices.dtype(where)))
    refuse(where, "one_hot", "indices must be integers; convert them", indices.dtype(), DType::int32);
  if (classes < 1) refuse(where, "one_hot", ErrorKind::invalid_argument, "there must be at least one class");
  Shape const shape = indices.shape();
  List<std::int64_t> each(shape.begin(), shape.end());
  each.push_back(1);
  List<std::int64_t> rows(shape.begin(), shape.end());
  rows.push_back(classes);
  Var const places = iota(builder, Shape(rows), shape.rank(), indices.dtype(), where);
  return convert(equal(Operand(places, where), Operand(reshape(indices, Shape(each), where), where)), dtype, where);
}

}  // namespace tutti::graph
