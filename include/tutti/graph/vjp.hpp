// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The vector-Jacobian product of every operation, about one line each: of functions of elements in graph/op/, of
/// others here. The table is total: an operation that is declared differentiable and has no rule does not compile.
///
/// n.g() is the cotangent of the result, n.in(i) an operand, n.out() the result; n.give(i, v) adds v to operand i's
/// cotangent.

#include <tutti/graph/composites.hpp>

namespace tutti::graph {

class Reverse;

/// One node during the reverse pass.
struct Back {
  Builder& builder;
  Reverse& reverse;
  Id id = none;
  List<Id> operands;
  List<Id> cotangents;  ///< per result; none where nothing depends on it
  Where where = Where::current();

  constexpr Var in(int i) const { return {&builder, operands[static_cast<std::size_t>(i)]}; }
  constexpr int count() const { return static_cast<int>(operands.size()); }
  constexpr Var out() const { return {&builder, id}; }
  constexpr Var out(int i) const { return detail::result(out(), i, where); }
  constexpr bool has_g(int i) const { return cotangents[static_cast<std::size_t>(i)] != none; }
  constexpr Var g(int i = 0) const {
    if (has_g(i)) return {&builder, cotangents[static_cast<std::size_t>(i)]};
    Type const type = builder.graph().type(id, i);
    return constant(builder, 0, type.shape, type.dtype, where);
  }
  constexpr std::int64_t integer(int i = 0) const { return builder.graph().integer(id, i); }
  constexpr List<std::int64_t> integers() const {
    auto const values = builder.graph().integers(id);
    return {values.begin(), values.end()};
  }
  constexpr double real(int i = 0) const { return builder.graph().real(id, i); }
  /// Of an operation of ranks.
  constexpr MeshAxis axis() const { return mesh_axis(builder.graph(), id); }
  constexpr Var make(Op op, std::initializer_list<Var> of) const { return detail::composite(op, of, {}, {}, where); }
  constexpr bool wants(int i) const;
  constexpr void give(int i, Var cotangent) const;
};

namespace detail {

constexpr List<std::int64_t> inverse(List<std::int64_t> const& permutation) {
  List<std::int64_t> values(permutation.size(), 0);
  for (std::size_t i = 0; i < permutation.size(); ++i)
    values[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return values;
}
constexpr List<std::int64_t> others(List<std::int64_t> const& axes, int rank) {
  List<std::int64_t> rest;
  for (int axis = 0; axis < rank; ++axis)
    if (!contains(axes, axis)) rest.push_back(axis);
  return rest;
}
/// Undoes a reduction over `axes`: the value along every dropped axis.
constexpr Var spread(Var g, Shape const& shape, List<std::int64_t> const& axes) {
  return broadcast_in_dim(g, shape, others(axes, shape.rank()));
}

constexpr void back_broadcast(Back const& n) {
  Shape const x = n.in(0).shape();
  List<std::int64_t> const map = n.integers();
  List<std::int64_t> summed;
  for (int axis = 0, next = 0; axis < n.g().rank(); ++axis) {
    bool const mapped = next < x.rank() && map[static_cast<std::size_t>(next)] == axis;
    if (!mapped || x[next] != n.g().shape()[axis]) summed.push_back(axis);
    next += int{mapped};
  }
  n.give(0, reshape(reduce(Op::reduce_sum, n.g(), std::move(summed), n.where), x));
}
constexpr void back_reduce_max(Back const& n) {
  Shape const shape = n.in(0).shape();
  Var const wins = equal(n.in(0), spread(n.out(), shape, n.integers()));
  Var const count = reduce(Op::reduce_sum, select(wins, full_like(n.in(0), 1), 0.0), n.integers(), n.where);
  n.give(0, select(wins, spread(n.g() / count, shape, n.integers()), 0.0));
}
constexpr void back_slice(Back const& n) {
  Shape const x = n.in(0).shape(), y = n.g().shape();
  List<std::int64_t> low, high, interior;
  for (int axis = 0; axis < x.rank(); ++axis) {
    std::int64_t const start = n.integer(axis), stride = n.integer(2 * x.rank() + axis);
    bool const empty = y[axis] == 0;
    low.push_back(empty ? 0 : start);
    high.push_back(empty ? x[axis] : x[axis] - 1 - (start + (y[axis] - 1) * stride));
    interior.push_back(stride - 1);
  }
  n.give(0, pad(n.g(), low, high, interior));
}
constexpr void back_pad(Back const& n) {
  Shape const x = n.in(0).shape();
  List<std::int64_t> starts, limits, strides;
  for (int axis = 0; axis < x.rank(); ++axis) {
    std::int64_t const low = n.integer(axis), step = n.integer(2 * x.rank() + axis) + 1;
    starts.push_back(low);
    limits.push_back(x[axis] == 0 ? low : low + (x[axis] - 1) * step + 1);
    strides.push_back(step);
  }
  n.give(0, slice(n.g(), starts, limits, strides));
}
constexpr void back_concatenate(Back const& n) {
  auto const axis = static_cast<std::size_t>(n.integer());
  std::int64_t at = 0;
  for (int i = 0; i < n.count(); ++i) {
    Shape const part = n.in(i).shape();
    List<std::int64_t> starts(static_cast<std::size_t>(part.rank()), 0), limits(part.begin(), part.end());
    starts[axis] += at;
    limits[axis] += at;
    at += part[static_cast<int>(axis)];
    n.give(i, slice(n.g(), starts, limits));
  }
}
constexpr List<Var> starts_of(Back const& n, int first) {
  List<Var> starts;
  for (int i = first; i < n.count(); ++i) starts.push_back(n.in(i));
  return starts;
}

/// Brings (batch, free, contracted ascending by the other operand's axis) into the order of an operand of dot_general.
constexpr Var operand_order(Var x, List<std::int64_t> const& batch, List<std::int64_t> const& contracted,
                            List<std::int64_t> const& partner) {
  int const rank = x.rank();
  List<std::int64_t> bound = batch;
  bound.append(contracted.begin(), contracted.end());
  List<std::int64_t> const free = others(bound, rank);
  List<std::int64_t> permutation(static_cast<std::size_t>(rank), 0);
  std::int64_t at = 0;
  for (std::int64_t axis : batch) permutation[static_cast<std::size_t>(axis)] = at++;
  for (std::int64_t axis : free) permutation[static_cast<std::size_t>(axis)] = at++;
  for (std::size_t i = 0; i < contracted.size(); ++i) {
    std::int64_t before = 0;
    for (std::int64_t other : partner) before += other < partner[i];
    permutation[static_cast<std::size_t>(contracted[i])] = at + before;
  }
  return transpose(x, std::move(permutation));
}
constexpr void back_dot(Back const& n) {
  auto const list = [](std::span<std::int64_t const> values) {
    return List<std::int64_t>(values.begin(), values.end());
  };
  DotShape const dot = dot_shape(n.builder.graph(), n.id);
  List<std::int64_t> const za = list(dot.batch_a), zb = list(dot.batch_b), ka = list(dot.contract_a),
                           kb = list(dot.contract_b);
  auto const batch = static_cast<std::int64_t>(za.size());
  auto const free_a = static_cast<std::int64_t>(n.in(0).rank()) - batch - static_cast<std::int64_t>(ka.size());
  auto const free_of = [](List<std::int64_t> bound, List<std::int64_t> const& more, int rank) {
    bound.append(more.begin(), more.end());
    return others(bound, rank);
  };
  Var const g = n.g();
  DType const product = product_type(n.builder.graph(), n.id);
  if (n.wants(0))
    n.give(0, operand_order(dot_general_of(product, g, n.in(1), ascending(batch + free_a, g.rank()),
                                        free_of(zb, kb, n.in(1).rank()), ascending(0, batch), zb),
                            za, ka, kb));
  if (n.wants(1))
    n.give(1, operand_order(dot_general_of(product, g, n.in(0), ascending(batch, batch + free_a),
                                           free_of(za, ka, n.in(0).rank()), ascending(0, batch), za),
                            zb, kb, ka));
}

constexpr void back_linear(Back const& n) {
  Var const g = n.g();
  List<std::int64_t> const rows = ascending(0, g.rank() - 1);
  DType const product = product_type(n.builder.graph(), n.id);
  if (n.wants(0)) n.give(0, dot_general_of(product, g, n.in(1), {g.rank() - 1}, {0}));
  if (n.wants(1)) n.give(1, dot_general_of(product, g, n.in(0), rows, rows));
  if (n.count() == 3 && n.wants(2)) n.give(2, reduce(Op::reduce_sum, g, rows, n.where));
}
constexpr void back_layer_norm(Back const& n) {
  Var const d = composite(Op::layer_norm_gradient, {n.g(), n.in(0), n.in(1), n.out(1), n.out(2)}, {}, {}, n.where);
  for (int i = 0; i < 3; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
constexpr void back_rms_norm(Back const& n) {
  Var const d = composite(Op::rms_norm_gradient, {n.g(), n.in(0), n.in(1), n.out(1)}, {}, {}, n.where);
  for (int i = 0; i < 2; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
constexpr void back_swiglu(Back const& n) {
  Var const d = composite(Op::swiglu_gradient, {n.g(), n.in(0), n.in(1)}, {}, {}, n.where);
  for (int i = 0; i < 2; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
/// Of x, the rotation back.
constexpr void back_rotary(Back const& n) {
  std::int64_t const pairing = n.integer(0), inverse = n.integer(1);
  n.give(0, composite(Op::rotary, {n.g(), n.in(1), n.in(2)}, {pairing, 1 - inverse}, {}, n.where));
  if (!n.wants(1) && !n.wants(2)) return;
  std::int64_t const pairs = n.in(1).shape()[1];
  RotaryPairs const x(n.in(0), pairing, pairs), g(n.g(), pairing, pairs);
  if (n.wants(1)) n.give(1, reduce_sum(g.a * x.a + g.b * x.b, {0, 2}));
  if (n.wants(2)) n.give(2, reduce_sum(inverse != 0 ? g.a * x.b - g.b * x.a : g.b * x.a - g.a * x.b, {0, 2}));
}
constexpr void back_attention(Back const& n) {
  n.give(0, composite(Op::attention_gradient, {n.g(), n.in(0), n.out(0), n.out(1)}, n.integers(), {n.real()}, n.where));
}
constexpr void back_embedding(Back const& n) {
  std::int64_t const position_rows = n.count() == 3 ? n.in(2).shape()[0] : 0;
  Var const d = composite(Op::embedding_gradient, {n.in(0), n.g()}, {n.in(1).shape()[0], position_rows}, {}, n.where);
  if (n.wants(1)) n.give(1, result(d, 0, n.where));
  if (n.count() == 3 && n.wants(2)) n.give(2, result(d, 1, n.where));
}
/// The loss kernels make their gradients themselves: a constant cotangent goes into their scale, any other one
/// multiplies what they made.
constexpr void back_loss(Back const& n) {
  Var node = n.out();
  double scale = n.real();
  auto const seed = constant_value(n.g());
  if (seed && *seed != scale) {
    bool used = false;  // somebody relies on the present scale already
    for (Id id = 0; id < n.builder.graph().size(); ++id)
      used = used ||
             (n.builder.graph().op(id) == Op::result && n.builder.graph().operand(id, 0) == n.id &&
              n.builder.graph().integer(id) > 0 && n.builder.graph().integer(id) + 1 < n.builder.graph().results(n.id));
    scale = *seed;
    if (used) node = emit(n.builder, draft(n.builder.graph().op(n.id), n.operands, n.integers(), {scale}), n.where);
    else n.builder.replace_real(n.id, 0, scale);
  }
  int const differentiable = n.builder.graph().op(n.id) == Op::cross_entropy ? 1 : 2;
  for (int i = 0; i < differentiable; ++i) {
    if (!n.wants(i)) continue;
    Var const d = result(node, i + 1, n.where);
    n.give(i, seed ? d : d * (n.g() / scale));
  }
}
/// The addends of a sum over ranks of this axis, where `sum` is one, perhaps under another shape.
constexpr Var addends_of(Var sum, MeshAxis axis) {
  Graph const& graph = sum.builder->graph();
  Id id = sum.id;
  while (graph.op(id) == Op::reshape) id = graph.operand(id, 0);
  bool const is_sum = graph.op(id) == Op::all_reduce && mesh_axis(graph, id) == axis &&
                      static_cast<comm::PortOp>(graph.integer(id)) == comm::PortOp::sum;
  return is_sum ? Var{sum.builder, graph.operand(id, 0)} : Var{};
}
constexpr void back_all_gather(Back const& n) {
  Shape const shape = n.in(0).shape();
  MeshAxis const along = n.axis();
  int const ranks = static_cast<int>(n.integer(0));
  if (gathering(n.builder.graph(), n.id).averages)
    return n.give(0, reduce_scatter(vary(n.g(), along, comm::PortOp::avg, n.where), along, ranks, comm::PortOp::avg,
                                    n.where));
  // This rank's rows of a sum, which nobody else needs whole, are all that is made of it.
  if (Var const addends = addends_of(n.g(), along); addends.builder != nullptr)
    return n.give(0, reduce_scatter(reshape(addends, n.g().shape()), along, ranks, comm::PortOp::sum, n.where));
  List<Var> starts{rank_number(n.builder, along, n.where) * static_cast<double>(shape[0])};
  for (int axis = 1; axis < shape.rank(); ++axis) starts.push_back(constant(n.builder, 0, {}, DType::int32, n.where));
  n.give(0, dynamic_slice(vary(n.g(), along, comm::PortOp::sum), starts, shape));
}
constexpr void back_reduce_scatter(Back const& n) {
  Var const all = all_gather(n.g(), n.axis(), static_cast<int>(n.integer(0)), n.where);
  bool const average = static_cast<comm::PortOp>(n.integer(1)) == comm::PortOp::avg;
  n.give(0, average ? all * (1.0 / static_cast<double>(n.integer(0))) : all);
}
constexpr void back_repeat(Back const& n);  // graph/grad_repeat.hpp

constexpr comm::PortOp port_op(Back const& n) { return static_cast<comm::PortOp>(n.integer()); }

struct Rule {
  Op op;
  void (*apply)(Back const&);
};
inline constexpr Rule rules[] = {
    {Op::barrier, [](Back const& n) { n.give(0, n.g()); }},
    {Op::broadcast_in_dim, back_broadcast},
    {Op::reshape, [](Back const& n) { n.give(0, reshape(n.g(), n.in(0).shape())); }},
    {Op::transpose, [](Back const& n) { n.give(0, transpose(n.g(), inverse(n.integers()))); }},
    {Op::slice, back_slice},
    {Op::pad, back_pad},
    {Op::concatenate, back_concatenate},
    {Op::dynamic_slice,
     [](Back const& n) { n.give(0, dynamic_update_slice(full_like(n.in(0), 0), n.g(), starts_of(n, 1))); }},
    {Op::dynamic_update_slice,
     [](Back const& n) {
       n.give(0, dynamic_update_slice(n.g(), full_like(n.in(1), 0), starts_of(n, 2)));
       n.give(1, dynamic_slice(n.g(), starts_of(n, 2), n.in(1).shape()));
     }},
    {Op::reduce_sum, [](Back const& n) { n.give(0, spread(n.g(), n.in(0).shape(), n.integers())); }},
    {Op::reduce_max, back_reduce_max},
    {Op::dot_general, back_dot},
    {Op::gather, [](Back const& n) { n.give(0, scatter_add(full_like(n.in(0), 0), n.in(1), n.g())); }},
    {Op::scatter_add, [](Back const& n) { n.give(0, n.g()), n.give(2, gather(n.g(), n.in(1))); }},
    {Op::linear, back_linear},
    {Op::layer_norm, back_layer_norm},
    {Op::rms_norm, back_rms_norm},
    {Op::rotary, back_rotary},
    {Op::swiglu, back_swiglu},
    {Op::cumsum,
     [](Back const& n) { n.give(0, cumsum(n.g(), static_cast<int>(n.integer(0)), n.integer(1) == 0, n.where)); }},
    {Op::dropout,
     [](Back const& n) {
       n.give(0, dropout(n.g(), n.real(), {n.in(1), n.in(2), n.in(3), n.in(4)}, n.where));
     }},
    {Op::attention, back_attention},
    {Op::embedding, back_embedding},
    {Op::cross_entropy, back_loss},
    {Op::linear_cross_entropy, back_loss},
    {Op::square_sum,
     [](Back const& n) {
       n.give(0, n.in(0) * convert(n.g() * 2.0, n.in(0).dtype()));
       if (n.count() == 2) n.give(1, n.g());
     }},
    {Op::custom,
     [](Back const& n) {
       CustomOperation const& operation = *n.builder.graph()[n.id].custom;
       if (!operation.has_gradient)
         refuse(n.where, Op::custom, ErrorKind::unavailable, "this operation came without a gradient; give it one");
       operation.gradient(n);
     }},
    {Op::vary, [](Back const& n) { n.give(0, all_reduce(vary(n.g(), n.axis(), port_op(n)), n.axis(), port_op(n))); }},
    {Op::partial, [](Back const& n) { n.give(0, n.g()); }},
    {Op::all_reduce, [](Back const& n) { n.give(0, vary(n.g(), n.axis(), port_op(n))); }},
    {Op::broadcast,
     [](Back const& n) {
       Var const here = equal(rank_number(n.builder, n.axis(), n.where), static_cast<double>(n.integer()));
       n.give(0, select(here, vary(n.g(), n.axis(), comm::PortOp::sum), 0.0));
     }},
    {Op::all_gather, back_all_gather},
    {Op::all_to_all,
     [](Back const& n) { n.give(0, all_to_all(n.g(), n.axis(), static_cast<int>(n.integer(0)), n.where)); }},
    {Op::send_receive,
     [](Back const& n) {
       n.give(0, send_receive(n.g(), n.axis(), static_cast<int>(n.integer(0)), -static_cast<int>(n.integer(1)),
                              n.integer(2) != 0, n.where));
     }},
    {Op::reduce_scatter, back_reduce_scatter},
    {Op::repeat, back_repeat},
};

struct MakeRule {
  template <Op O>
  static constexpr void apply(Back const& n) {
    Operation<O>::gradient(n);
  }
  template <Op O>
  static constexpr auto of() -> void (*)(Back const&) {
    if constexpr (Operation<O>::differentiability == Differentiability::rule) return apply<O>;
    else return nullptr;
  }
};
constexpr auto rule_table() {
  auto table = function_table<MakeRule, std::size_t{op_count}>();
  for (Rule const& rule : rules) table[static_cast<std::size_t>(rule.op)] = rule.apply;
  return table;
}
inline constexpr auto rule_of = rule_table();

/// Looks at the names: sanitizers make comparing functions with null no constant expression.
constexpr bool has_rule(Op op) {
  for (Rule const& rule : rules)
    if (rule.op == op) return true;
  return false;
}
constexpr bool op_table_is_complete() {
  for (std::size_t i = 0; i < op_table<>.size(); ++i)
    if (op_table<>[i].name.empty() || op_table<>[i].op != static_cast<Op>(i)) return false;
  return true;
}
static_assert(op_table_is_complete(), "every operation of Op needs a file in graph/op/ or a row in op_rows");
constexpr bool rules_are_total() {
  for (OpInfo const& facts : op_table<>)
    if (!is_function(facts.op) && (facts.differentiability == Differentiability::rule) != has_rule(facts.op))
      return false;
  return true;
}
static_assert(rules_are_total(),
              "every operation that op.hpp declares differentiable needs a rule in `rules`, and no other has one");

}  // namespace detail

}  // namespace tutti::graph

// The rules call back into the reverse pass, and the reverse pass calls them: one is of no use without the other.
#include <tutti/graph/grad.hpp>

#include <span>
