// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The vocabulary of model functions: operators and primitives on handles. graph/op.hpp says what each computes.
/// Integers wrap modulo 2^bits.

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
    refuse(where, "graph", ErrorKind::invalid_argument,
           unbound);
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
/// Folds two constants; keeps a seed of one, or of one over the number of micro-batches, a constant through the reverse
/// pass.
constexpr std::optional<double> folded(Op op, Var a, Var b) {
  auto const x = constant_value(a), y = constant_value(b);
  if (!x || !y || a.dtype() != b.dtype() || !is_floating(a.dtype())) return std::nullopt;
  switch (op) {
    case Op::add: return *x + *y;
    case Op::subtract: return *x - *y;
    case Op::multiply: return *x * *y;
    default: return std::nullopt;
  }
}
constexpr Var arithmetic(Op op, Operand const& a, Operand const& b) {
  Pair const pair = matched(op, a, b);
  if (auto const value = folded(op, pair.a, pair.b)) return full_like(pair.a, *value, a.where);
  bool const unit = op == Op::multiply || op == Op::divide;
  if (pair.a.dtype() == pair.b.dtype()) {
    if (is_constant(pair.b, unit ? 1 : 0)) return pair.a;
    if ((op == Op::add || op == Op::multiply) && is_constant(pair.a, unit ? 1 : 0)) return pair.b;
  }
  return emit(*pair.a.builder, draft(op, {pair.a.id, pair.b.id}), a.where);
}

}  // namespace detail

// Operators broadcast as NumPy does; adding zero and multiplying by one leave no node.
constexpr Var operator+(Operand a, Operand b) { return detail::arithmetic(Op::add, a, b); }
constexpr Var operator-(Operand a, Operand b) { return detail::arithmetic(Op::subtract, a, b); }
constexpr Var operator*(Operand a, Operand b) { return detail::arithmetic(Op::multiply, a, b); }
constexpr Var operator/(Operand a, Operand b) { return detail::arithmetic(Op::divide, a, b); }
constexpr Var operator-(Operand a) {
  detail::home(a.var, a.where);
  if (auto const value = detail::constant_value(a.var); value && is_floating(a.var.dtype(a.where)))
    return full_like(a.var, -*value, a.where);
  return detail::unary(Op::negate, a.var, a.where);
}

/// Ties: each side gets half the gradient.
constexpr Var maximum(Operand a, Operand b) { return detail::binary(Op::maximum, a, b); }
constexpr Var exp(Var x, Where where = Where::current()) { return detail::unary(Op::exponential, x, where); }
constexpr Var log(Var x, Where where = Where::current()) { return detail::unary(Op::logarithm, x, where); }
constexpr Var tanh(Var x, Where where = Where::current()) { return detail::unary(Op::tanh, x, where); }
constexpr Var logistic(Var x, Where where = Where::current()) { return detail::unary(Op::logistic, x, where); }
constexpr Var sin(Var x, Where where = Where::current()) { return detail::unary(Op::sine, x, where); }
constexpr Var cos(Var x, Where where = Where::current()) { return detail::unary(Op::cosine, x, where); }
constexpr Var sqrt(Var x, Where where = Where::current()) { return detail::unary(Op::square_root, x, where); }
constexpr Var rsqrt(Var x, Where where = Where::current()) {
  return detail::unary(Op::reciprocal_square_root, x, where);
}
constexpr Var pow(Var x, double exponent, Where where = Where::current()) {
  if (exponent == 1) return x;
  return detail::unary(Op::power, x, where, {exponent});
}
constexpr Var gelu(Var x, Where where = Where::current()) { return detail::unary(Op::gelu, x, where); }
/// x logistic(x), also known as swish.
constexpr Var silu(Var x, Where where = Where::current()) { return detail::unary(Op::silu, x, where); }
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

constexpr Var compare(Comparison comparison, Operand a, Operand b) {
  detail::Pair const pair = detail::matched(Op::compare, a, b);
  return detail::emit(*pair.a.builder,
                      draft(Op::compare, {pair.a.id, pair.b.id}, {static_cast<std::int64_t>(comparison)}), a.where);
}
constexpr Var less(Operand a, Operand b) { return compare(Comparison::less, a, b); }
constexpr Var less_equal(Operand a, Operand b) { return compare(Comparison::less_equal, a, b); }
constexpr Var equal(Operand a, Operand b) { return compare(Comparison::equal, a, b); }
constexpr Var not_equal(Operand a, Operand b) { return compare(Comparison::not_equal, a, b); }
/// a where the predicate holds, else b.
constexpr Var select(Var predicate, Operand a, Operand b) {
  detail::Pair const pair = detail::matched(Op::select, a, b);
  Builder& builder = detail::home(predicate, pair.a, pair.b, a.where);
  Shape const shape = detail::common_shape(Op::select, predicate.shape(a.where), pair.a.shape(), a.where);
  auto const ready = [&](Var v) { return broadcast_to(detail::adopted(builder, v, a.where), shape, a.where).id; };
  Id const p = ready(predicate), x = ready(pair.a), y = ready(pair.b);
  return detail::emit(builder, draft(Op::select, {p, x, y}), a.where);
}
/// Ties: each side gets half the gradient.
constexpr Var minimum(Operand a, Operand b) {
  detail::Pair const pair = detail::matched(Op::maximum, a, b);
  Operand const x(pair.a, a.where), y(pair.b, a.where);
  if (!is_floating(pair.a.dtype())) return select(less(x, y), x, y);  // not every integer can be negated
  return -detail::binary(Op::maximum, Operand(-pair.a, a.where), Operand(-pair.b, a.where));
}
/// Numbers become integers toward zero and saturate, NaN becomes 0; integers become narrower ones modulo 2^bits.
/// Nonzero is true.
constexpr Var convert(Var x, DType dtype, Where where = Where::current()) {
  if (x.dtype(where) == dtype) return x;
  return detail::emit(detail::home(x, where), draft(Op::convert, {x.id}, {}, {}, {dtype, {}, x.shape()}), where);
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

/// Drops the axes; negative ones count from the end.
constexpr Var reduce(Op op, Var x, List<std::int64_t> axes, Where where) {
  for (std::int64_t& axis : axes) axis += axis < 0 ? x.rank(where) : 0;
  if (axes.empty()) return x;
  return detail::emit(detail::home(x, where), draft(op, {x.id}, std::move(axes)), where);
}
constexpr Var reduce_sum(Var x, Axes axes, Where where = Where::current()) {
  return reduce(Op::reduce_sum, x, detail::listed(axes), where);
}
/// Ties share the gradient evenly.
constexpr Var reduce_max(Var x, Axes axes, Where where = Where::current()) {
  return reduce(Op::reduce_max, x, detail::listed(axes), where);
}
constexpr Var sum_all(Var x, Where where = Where::current()) {
  List<std::int64_t> axes;
  for (int axis = 0; axis < x.rank(where); ++axis) axes.push_back(axis);
  return reduce(Op::reduce_sum, x, std::move(axes), where);
}
constexpr Var mean_all(Var x, Where where = Where::current()) {
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

}  // namespace tutti::graph
