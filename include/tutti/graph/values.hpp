// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What functions on handles are made of: arguments that may be numbers, constants, broadcasts, nodes.

#include <tutti/graph/builder.hpp>

#include <concepts>
#include <initializer_list>
#include <optional>

namespace tutti::graph {

/// An argument of an operator: a value, a parameter or a number, with the line where it was written. Operators cannot
/// have default arguments, but the conversion to this type can.
struct Operand {
  Var var;                       ///< of no graph where a number was given, or a parameter that is not bound
  std::optional<double> number;
  std::source_location where;

  constexpr Operand(Var value, std::source_location at = std::source_location::current()) : var(value), where(at) {}
  constexpr Operand(double value, std::source_location at = std::source_location::current())
      : number(value), where(at) {}
  template <class Handle>
  requires(std::convertible_to<Handle const&, Var> &&
           !std::same_as<Handle, Var>) constexpr Operand(Handle const& value,
                                                         std::source_location at = std::source_location::current())
      : var(value), where(at) {}
};

using Axes = std::initializer_list<std::int64_t>;
using Where = std::source_location;

namespace detail {

/// The graph in which an operation on these values happens: the innermost.
constexpr Builder& home(Var a, Var b = {}, Var c = {}, Where where = Where::current()) {
  Builder* builder = a.builder;
  for (Builder* other : {b.builder, c.builder})
    if (builder == nullptr || (other != nullptr && other->depth() > builder->depth())) builder = other;
  if (builder == nullptr)
    refuse(where, "graph", ErrorKind::invalid_argument, unbound);
  return *builder;
}
constexpr Builder& home(Var a, Where where) { return home(a, {}, {}, where); }
constexpr std::optional<double> constant_value(Var v) {
  Graph const& graph = v.builder->graph();
  if (graph.op(v.id) != Op::constant) return std::nullopt;
  return graph.real(v.id);
}
constexpr bool is_constant(Var v, double value) { return constant_value(v) == value; }
constexpr Var adopted(Builder& builder, Var v, Where where) { return {&builder, builder.adopt(v, where)}; }
constexpr List<std::int64_t> listed(Axes axes) { return {axes.begin(), axes.end()}; }

constexpr Var emit(Builder& builder, Draft wanted, Where where) {
  return {&builder, builder.emit(std::move(wanted), where)};
}
constexpr Var unary(Op op, Var x, Where where, List<double> reals = {}) {
  Builder& builder = home(x, where);
  return emit(builder, draft(op, {x.id}, {}, std::move(reals)), where);
}
/// A result of a node that has several.
constexpr Var result(Var node, int index, Where where) {
  return emit(*node.builder, draft(Op::result, {node.id}, {index}), where);
}

constexpr void require_holds(Op op, DType dtype, double value, Where where) {
  if (!holds(dtype, value))
    refuse(where, op, ErrorKind::dtype,
           "no " + std::string(tutti::name(dtype)) + " is " + std::to_string(value) +
               ". Convert the tensor that meets this number, or round the number");
}

}  // namespace detail

/// Every element is `value`. Errors: dtype, when no element of the type is.
constexpr Var constant(Builder& builder, double value, Shape const& shape = {}, DType dtype = DType::float32,
                       Where where = Where::current()) {
  detail::require_holds(Op::constant, dtype, value, where);
  return detail::emit(builder, draft(Op::constant, {}, {}, {value}, {dtype, Replication::replicated, shape}), where);
}
constexpr Var full_like(Var x, double value, Where where = Where::current()) {
  return constant(detail::home(x, where), value, x.shape(where), x.dtype(where), where);
}
/// Element i along `axis` is i.
constexpr Var iota(Builder& builder, Shape const& shape, int axis, DType dtype = DType::int32,
                   Where where = Where::current()) {
  return detail::emit(builder, draft(Op::iota, {}, {axis}, {}, {dtype, Replication::replicated, shape}), where);
}

/// Axis i of x becomes axis axes[i] of the result.
constexpr Var broadcast_in_dim(Var x, Shape const& shape, List<std::int64_t> axes, Where where = Where::current()) {
  Builder& builder = detail::home(x, where);
  if (x.shape() == shape) return x;
  if (auto const value = detail::constant_value(x)) return constant(builder, *value, shape, x.dtype(), where);
  return detail::emit(builder, draft(Op::broadcast_in_dim, {x.id}, std::move(axes), {}, {x.dtype(), {}, shape}),
                      where);
}
/// As NumPy does: aligned at the last axis.
constexpr Var broadcast_to(Var x, Shape const& shape, Where where = Where::current()) {
  List<std::int64_t> axes;
  for (int axis = 0; axis < x.rank(where); ++axis) axes.push_back(shape.rank() - x.rank() + axis);
  if (x.rank() > shape.rank()) refuse(where, Op::broadcast_in_dim, "a broadcast cannot drop axes", x.shape(), shape);
  return broadcast_in_dim(x, shape, std::move(axes), where);
}

namespace detail {

constexpr Shape common_shape(Op op, Shape const& a, Shape const& b, Where where) {
  Shape const &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int axis = 0; axis < shorter.rank(); ++axis) {
    int const at = longer.rank() - shorter.rank() + axis;
    if (longer[at] == 1) out = out.with(at, shorter[axis]);
    else if (shorter[axis] != longer[at] && shorter[axis] != 1)
      refuse(where, op, "operands do not broadcast: extents, aligned at the last axis, must be equal or 1", a, b);
  }
  return out;
}

struct Pair {
  Var a, b;
};
constexpr Pair matched(Op op, Operand const& a, Operand const& b) {
  Builder& builder = home(a.var, b.var, {}, a.where);
  Var x = a.number ? Var{} : adopted(builder, a.var, a.where);
  Var y = b.number ? Var{} : adopted(builder, b.var, a.where);
  if (a.number) x = constant(builder, *a.number, y.shape(), y.dtype(), a.where);
  if (b.number) y = constant(builder, *b.number, x.shape(), x.dtype(), a.where);
  if (x.shape() == y.shape()) return {x, y};
  Shape const shape = common_shape(op, x.shape(), y.shape(), a.where);
  return {broadcast_to(x, shape, a.where), broadcast_to(y, shape, a.where)};
}
constexpr Var binary(Op op, Operand const& a, Operand const& b) {
  Pair const pair = matched(op, a, b);
  return emit(*pair.a.builder, draft(op, {pair.a.id, pair.b.id}), a.where);
}

}  // namespace detail

}  // namespace tutti::graph

#include <tutti/graph/op/elementwise.hpp>
