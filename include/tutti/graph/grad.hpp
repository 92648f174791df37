// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reverse-mode gradient of a value with respect to others, in the same graph. Cotangents are collected by node, so a
/// parameter used twice needs nothing special; the order of their sums follows from the graph alone, never from C++'s
/// order of evaluation.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/vjp.hpp>
#include <tutti/reflect/members.hpp>

namespace tutti::graph {

/// The reverse pass over one graph or body. Where an operation's own rule ends - it is a gradient itself, or another
/// result than its first is differentiated - it is written out in primitives, and the pass goes through these.
class Reverse {
 public:
  /// `leaves`: of what `wrt` was computed from is no matter.
  constexpr Reverse(Builder& builder, List<Id> const& outputs, List<Id> const& wrt, bool leaves = false)
      : builder_(builder),
        order_(reachable_order(builder.graph(), outputs)),
        active_(builder.graph().nodes.size(), char{0}),
        cotangents_(builder.graph().nodes.size(), none) {
    Graph const& graph = builder_.graph();
    for (Id id : wrt) active_[at(id)] = leaves ? leaf : 1;
    for (Id id : order_) {
      if (active(id)) continue;
      if (info(graph.op(id)).differentiability == Differentiability::none && graph.op(id) != Op::result) continue;
      bool depends = false;
      for (Id operand : graph.operands(id)) depends = depends || active(operand);
      active_[at(id)] = depends && (graph.results(id) > 1 || is_floating(graph.dtype(id))) ? 1 : 0;
    }
  }

  constexpr bool active(Id id) const { return active_[at(id)] != 0; }
  constexpr Id cotangent(Id id) const { return cotangents_[at(id)]; }

  constexpr void add(Id id, Var cotangent) {
    Id const value = builder_.adopt(cotangent);
    if (builder_.graph().shape(value) != builder_.graph().shape(id) ||
        builder_.graph().dtype(value) != builder_.graph().dtype(id))
      refuse(Where::current(), builder_.graph().op(id),
             "a gradient rule made a cotangent of another shape or dtype; please report it", builder_.graph().shape(id),
             builder_.graph().shape(value));
    Id& sum = cotangents_[at(id)];
    sum = sum == none ? value : sum_of(sum, value);
  }

  constexpr void run() {
    for (std::size_t i = order_.size(); i-- > 0;) {
      Id const id = order_[i];
      if (!active(id) || active_[at(id)] == leaf) continue;
      Graph const& graph = builder_.graph();
      Op const op = graph.op(id);
      if (op == Op::result) {
        if (cotangents_[at(id)] != none)
          results_.push_back({graph.operand(id, 0), static_cast<int>(graph.integer(id)), cotangents_[at(id)]});
        continue;
      }
      Back node{builder_, *this, id, {graph.operands(id).begin(), graph.operands(id).end()},
                List<Id>(static_cast<std::size_t>(graph.results(id)), none)};
      bool reached = cotangents_[at(id)] != none, beyond_first = false;
      node.cotangents[0] = cotangents_[at(id)];
      for (ResultCotangent const& result : results_)
        if (result.node == id) {
          node.cotangents[static_cast<std::size_t>(result.index)] = result.cotangent;
          reached = true;
          beyond_first = beyond_first || result.index > 0;
        }
      if (!reached || info(op).kind == OpClass::leaf) continue;
      builder_.inherit_source(id);
      if (info(op).differentiability == Differentiability::first_order ||
          (beyond_first && info(op).kind == OpClass::composite))
        through_primitives(node);
      else if (info(op).differentiability == Differentiability::rule)
        detail::rule_of[static_cast<std::size_t>(op)](node);
    }
    builder_.inherit_source(none);
  }

 private:
  struct ResultCotangent {
    Id node;
    int index;
    Id cotangent;
  };
  static constexpr char leaf = 2;
  static constexpr std::size_t at(Id id) { return static_cast<std::size_t>(id); }

  /// The operands' cotangents, from those of the node's results, by the rules of the primitives that it stands for.
  constexpr void through_primitives(Back const& node) {
    detail::Parts parts{builder_, builder_.graph(), node.id, {}};
    for (Id operand : node.operands) parts.operands.push_back({&builder_, operand});
    List<Var> const results = detail::written(parts);
    if (results.empty())
      refuse(node.where, builder_.graph().op(node.id), ErrorKind::unavailable,
             "this is a gradient that has none itself and stands for no primitives");
    List<Id> outputs, wrt;
    for (Var v : results) outputs.push_back(v.id);
    for (Id operand : node.operands)
      if (active(operand) && !detail::contains(wrt, operand)) wrt.push_back(operand);
    Reverse inner(builder_, outputs, wrt, true);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (node.cotangents[i] != none && inner.active(outputs[i]))
        inner.add(outputs[i], {&builder_, node.cotangents[i]});
    inner.run();
    builder_.inherit_source(node.id);
    for (Id operand : wrt)
      if (inner.cotangent(operand) != none) add(operand, {&builder_, inner.cotangent(operand)});
  }

  /// A table's gradient that stands on nothing can be made to stand on the rest of the sum: rows are then added in
  /// place.
  constexpr Id onto(Id value, Id base) {
    Graph const& graph = builder_.graph();
    if (graph.op(value) == Op::result && graph.integer(value) == 0) {
      Id const node = graph.operand(value, 0);
      if (graph.op(node) == Op::embedding_gradient && graph.operands(node).size() == 2) {
        auto const integers = graph.integers(node);
        Id const based =
            builder_.emit(draft(Op::embedding_gradient, {graph.operand(node, 0), graph.operand(node, 1), base},
                                {integers.begin(), integers.end()}));
        return builder_.emit(draft(Op::result, {based}, {0}));
      }
    }
    if (graph.op(value) == Op::scatter_add && graph.op(graph.operand(value, 0)) == Op::constant &&
        graph.real(graph.operand(value, 0)) == 0)
      return builder_.emit(draft(Op::scatter_add, {base, graph.operand(value, 1), graph.operand(value, 2)}));
    return none;
  }
  constexpr Id sum_of(Id sum, Id value) {
    if (Id const based = onto(value, sum); based != none) return based;
    if (Id const based = onto(sum, value); based != none) return based;
    return (Var{&builder_, sum} + Var{&builder_, value}).id;
  }

  Builder& builder_;
  List<Id> order_;
  List<char> active_;
  List<Id> cotangents_;
  List<ResultCotangent> results_;
};

constexpr bool Back::wants(int i) const { return reverse.active(operands[static_cast<std::size_t>(i)]); }
constexpr void Back::give(int i, Var cotangent) const {
  if (wants(i)) reverse.add(operands[static_cast<std::size_t>(i)], cotangent);
}

/// d loss / d wrt for every entry of `wrt`, zeros where there is no path. `seed` is the cotangent of the loss: 1 / n
/// makes the gradients of an average over n micro-batches. A policy other than `none` becomes that of every repeat of
/// the graph, and decides what their gradients compute again.
/// Requires  the loss is a floating scalar, and `wrt` are leaves or intermediate values of the same graph
/// Ranks     a loss that varies over ranks stands for the average of the ranks' losses: gradients of replicated values
///           are averaged over ranks where they arise (see `vary`)
constexpr List<Var> gradients(Var loss, List<Var> const& wrt, double seed = 1, Recompute recompute = Recompute::none,
                              Where where = Where::current()) {
  if (loss.rank(where) != 0)
    refuse(where, "gradients", "only a scalar has a gradient; sum or average it first", loss.shape());
  if (!is_floating(loss.dtype()))
    refuse(where, "gradients", "only a floating value has a gradient", loss.dtype(), DType::float32);
  Builder& builder = *loss.builder;
  if (recompute != Recompute::none) builder.set_recompute(recompute);
  List<Id> ids;
  for (Var v : wrt) ids.push_back(builder.adopt(v, where));
  Reverse reverse(builder, {loss.id}, ids);
  if (reverse.active(loss.id)) reverse.add(loss.id, constant(builder, seed, {}, loss.dtype(), where));
  reverse.run();
  List<Var> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Id const id = reverse.cotangent(ids[i]);
    result.push_back(id != none ? Var{&builder, id} : full_like(Var{&builder, ids[i]}, 0, where));
  }
  return result;
}

/// Whether a gradient is zero because nothing depends on what it is the gradient of: with no path between them, in the
/// graph or in the body of a loop.
constexpr bool is_absent(Graph const& graph, Id gradient) {
  auto const zero = [](Graph const& of, Id id) { return of.op(id) == Op::constant && of.real(id) == 0; };
  if (zero(graph, gradient)) return true;
  if (graph.op(gradient) != Op::result || graph.op(graph.operand(gradient, 0)) != Op::repeat) return false;
  Id const loop = graph.operand(gradient, 0);
  Graph const& body = graph.body(loop);
  auto const index = static_cast<int>(graph.integer(gradient));
  Id const made = body.outputs[static_cast<std::size_t>(index)].node;
  if (index >= repeat_shape(graph, loop).carried) return is_absent(body, made);
  // A sum over iterations that starts at zero and to which nothing is added.
  Id const sum = body.inputs[static_cast<std::size_t>(index)];
  bool const kept = made == sum || (body.op(made) == Op::add && body.operand(made, 0) == sum &&
                                    is_absent(body, body.operand(made, 1)));
  return kept && zero(graph, graph.operand(loop, index));
}

/// The graph with one more output per parameter: "gradient.NAME" of the output `loss`; `seed` and `recompute` as above.
constexpr Graph grad(Graph const& graph, std::string_view loss = "loss", double seed = 1,
                     Recompute recompute = Recompute::none, Where where = Where::current()) {
  Builder builder;
  builder.load(graph);
  Id const id = graph.find_output(loss);
  if (id == none)
    refuse(where, "grad", ErrorKind::invalid_argument,
           "the graph has no output \"" + std::string(loss) + "\"; name its loss");
  List<Var> wrt;
  for (Parameter const& parameter : graph.parameters) wrt.push_back({&builder, parameter.node});
  List<Var> const values = gradients({&builder, id}, wrt, seed, recompute, where);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    builder.output(reflect::Path("gradient.").append(graph.name(wrt[i].id)), values[i], where);
  return canonical(builder.graph());
}

}  // namespace tutti::graph

#include <tutti/graph/grad_repeat.hpp>
