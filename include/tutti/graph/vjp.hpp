// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The vector-Jacobian product of every operation, about one line each: of functions of elements in graph/op/, of
/// others here. The table is total: an operation that is declared differentiable and has no rule does not compile.
///
/// n.g() is the cotangent of the result, n.in(i) an operand, n.out() the result; n.give(i, v) adds v to operand i's
/// cotangent.

#include <tutti/graph/back.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/vjp_arrays.hpp>  // NOLINT(misc-header-include-cycle)
#include <tutti/graph/vjp_composites.hpp>  // NOLINT(misc-header-include-cycle)

namespace tutti::graph {

namespace detail {

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
              "every operation that op/rows.hpp declares differentiable needs a rule in `rules`, and no other has one");

}  // namespace detail

}  // namespace tutti::graph

// The rules call back into the reverse pass, and the reverse pass calls them: one is of no use without the other.
#include <tutti/graph/grad.hpp>

