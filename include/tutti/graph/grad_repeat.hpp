// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Gradient of `repeat`: the body is differentiated once; the forward node keeps what that gradient reads (residuals,
/// as stacked results), and a second repeat runs the other way, which may compute some of it again (see Recompute).

#include <tutti/graph/grad.hpp>
#include <tutti/graph/recompute.hpp>

namespace tutti::graph::detail {

/// Splits a differentiated body in two.
class BodyGradient {
 public:
  constexpr BodyGradient(Back const& n)
      : n_(n), shape_(repeat_shape(n.builder.graph(), n.id)), forward_inputs_(n.builder.graph().body(n.id).inputs) {
    body_.load(n.builder.graph().body(n.id));
    forward_size_ = body_.graph().size();
    forward_outputs_ = body_.graph().outputs;
  }

  constexpr void run() {
    differentiate();
    Graph const backward = extract();
    extend_forward();
    emit_backward(backward);
  }

 private:
  struct Carry {      // of the backward loop
    Id input, next;   // in the body
    Var initial;      // outside
    int operand;      // of the forward node: who receives the final value
  };
  struct Slice {      // stacked operand of the backward loop
    Id input;         // in the body
    Var stacked;      // outside; of a residual: not known before the forward node is extended
    std::int32_t residual = none;
  };

  constexpr Id add_input(std::string_view name, Type const& type) {
    return body_.input(name, type.dtype, type.shape, type.replication, n_.where).id;
  }

  constexpr void differentiate() {
    List<Id> outputs, wrt;
    List<Id> seeds;
    int const inputs = static_cast<int>(forward_inputs_.size());
    for (int i = 0; i < shape_.carried; ++i) {
      Id const output = forward_outputs_[static_cast<std::size_t>(i)].node;
      if (!is_floating(body_.graph().dtype(output))) continue;
      body_.inherit_source(output);
      Id const cotangent = add_input(reflect::Path("cotangent.").append(i), body_.graph().type(output));
      outputs.push_back(output);
      seeds.push_back(cotangent);
      wrt.push_back(forward_inputs_[static_cast<std::size_t>(i)]);
      carries_.push_back({cotangent, none, n_.g(i), i});
    }
    for (int i = shape_.carried; i < static_cast<int>(forward_outputs_.size()); ++i) {
      if (!n_.has_g(i)) continue;
      Id const output = forward_outputs_[static_cast<std::size_t>(i)].node;
      body_.inherit_source(output);
      outputs.push_back(output);
      seeds.push_back(add_input(reflect::Path("cotangent.").append(i), body_.graph().type(output)));
      slices_.push_back({seeds.back(), n_.g(i)});
    }
    for (int i = shape_.carried; i < inputs; ++i)
      if (n_.wants(i) && is_floating(body_.graph().dtype(forward_inputs_[static_cast<std::size_t>(i)])))
        wrt.push_back(forward_inputs_[static_cast<std::size_t>(i)]);

    Reverse reverse(body_, outputs, wrt);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (reverse.active(outputs[i])) reverse.add(outputs[i], {&body_, seeds[i]});
    reverse.run();
    body_.inherit_source(forward_outputs_[0].node);

    auto const adjoint = [&](int input) {
      Id const of = forward_inputs_[static_cast<std::size_t>(input)], id = reverse.cotangent(of);
      return id != none ? id : full_like({&body_, of}, 0, n_.where).id;
    };
    for (Carry& carry : carries_) carry.next = adjoint(carry.operand);
    for (int i = shape_.carried; i < inputs; ++i) {
      Id const input = forward_inputs_[static_cast<std::size_t>(i)];
      if (!n_.wants(i) || !is_floating(body_.graph().dtype(input))) continue;
      if (i < shape_.carried + shape_.invariants) {
        Id const sum = add_input(reflect::Path("sum.").append(i), body_.graph().type(input));
        carries_.push_back({sum, (Var{&body_, sum} + Var{&body_, adjoint(i)}).id, full_like(n_.in(i), 0, n_.where), i});
      } else {
        stacked_results_.push_back(adjoint(i));
        stacked_operands_.push_back(i);
      }
    }
  }

  /// Computed by the forward loop. A projection that only the gradient wants (saved statistics) belongs to it as well.
  constexpr bool is_forward(Id id) const {
    return id < forward_size_ || (body_.graph().op(id) == Op::result && body_.graph().operand(id, 0) < forward_size_);
  }
  /// Comes into the backward loop from outside.
  constexpr bool is_cut(Id id) const {
    return body_.graph().op(id) == Op::input ||
           (is_forward(id) && !is_free(body_.graph(), id) &&
            (again_.empty() || again_[static_cast<std::size_t>(id)] == 0));
  }
  /// What the backward loop needs, from its results down to the cuts.
  constexpr List<char> needed_of(List<Id> const& order, List<Id> const& roots) const {
    List<char> needed(body_.graph().nodes.size(), char{0});
    for (Id root : roots) needed[static_cast<std::size_t>(root)] = 1;
    for (std::size_t i = order.size(); i-- > 0;)
      if (needed[static_cast<std::size_t>(order[i])] != 0 && !is_cut(order[i]))
        for (Id operand : body_.graph().operands(order[i])) needed[static_cast<std::size_t>(operand)] = 1;
    return needed;
  }
  /// Chooses what is computed again. Of `pointwise` no value is kept that `none` would not keep: operands must be among
  /// those, computed again themselves, or slices and invariants, which are there.
  constexpr void choose(List<Id> const& order, List<Id> const& roots) {
    if (shape_.recompute == Recompute::none) return;
    Graph const& graph = body_.graph();
    List<char> const kept = needed_of(order, roots);
    List<char> again(graph.nodes.size(), char{0}), there = kept;
    for (std::size_t i = static_cast<std::size_t>(shape_.carried); i < forward_inputs_.size(); ++i)
      there[static_cast<std::size_t>(forward_inputs_[i])] = 1;
    for (Id id : order) {
      if (!is_forward(id) || graph.op(id) == Op::input) continue;
      bool possible = true;
      for (Id operand : graph.operands(id)) possible = possible && there[static_cast<std::size_t>(operand)] != 0;
      bool const chosen = shape_.recompute == Recompute::block ? !is_sent(graph, id)
                          : graph.op(id) == Op::result ? again[static_cast<std::size_t>(graph.operand(id, 0))] != 0
                                                       : possible && is_pointwise(graph, id);
      again[static_cast<std::size_t>(id)] = chosen ? 1 : 0;
      if (chosen || (possible && is_free(graph, id))) there[static_cast<std::size_t>(id)] = 1;
    }
    again_ = std::move(again);
  }

  constexpr Graph extract() {
    std::int32_t const residual = body_.intern("residual"), gradient = body_.intern("gradient");
    Graph const& graph = body_.graph();
    List<Id> roots;
    for (Carry const& carry : carries_) roots.push_back(carry.next);
    roots.append(stacked_results_.begin(), stacked_results_.end());
    List<Id> const order = reachable_order(graph, roots);
    choose(order, roots);
    List<char> const needed = needed_of(order, roots);

    for (Id id : order) {
      if (needed[static_cast<std::size_t>(id)] == 0 || !is_cut(id)) continue;
      int input = 0;
      int const inputs = static_cast<int>(forward_inputs_.size());
      while (input < inputs && forward_inputs_[static_cast<std::size_t>(input)] != id) ++input;
      if (input == inputs && graph.op(id) == Op::input) continue;  // a cotangent or a sum: listed already
      if (input >= shape_.carried && input < shape_.carried + shape_.invariants)
        invariants_.push_back({id, n_.in(input)});
      else if (input >= shape_.carried + shape_.invariants && input < inputs) slices_.push_back({id, n_.in(input)});
      else {
        slices_.push_back({id, {}, static_cast<std::int32_t>(residuals_.size())});
        residuals_.push_back(id);
      }
    }

    Renumbering renumbering(graph, true);
    Graph& to = renumbering.to;
    auto const as_input = [&](Id id) { to.inputs.push_back(renumbering.add_input(id, residual)); };
    for (Carry const& carry : carries_) as_input(carry.input);
    for (Slice const& invariant : invariants_) as_input(invariant.input);
    for (Slice const& slice : slices_) as_input(slice.input);
    // Behind barriers nothing that is computed again moves, in the list of steps, to where it was computed first.
    if (shape_.recompute != Recompute::none)
      for (Slice const& slice : slices_)
        if (slice.residual != none) renumbering.add_barrier(slice.input);
    for (Id id : order)
      if (needed[static_cast<std::size_t>(id)] != 0 && !is_cut(id)) renumbering.add(id);
    std::int32_t const name = renumbering.name(gradient);
    for (Id root : roots) to.outputs.push_back({name, renumbering[root]});
    return canonical(to);
  }

  /// The forward body returns its residuals too.
  constexpr void extend_forward() {
    first_residual_ = static_cast<int>(forward_outputs_.size());
    if (residuals_.empty()) return;
    body_.order_inputs(forward_inputs_);
    for (std::size_t i = 0; i < residuals_.size(); ++i)
      body_.output(reflect::Path("residual.").append(first_residual_ + static_cast<int>(i)), {&body_, residuals_[i]},
                   n_.where);
    n_.builder.extend_repeat(n_.id, canonical(body_.graph()), n_.where);
  }

  constexpr void emit_backward(Graph const& backward) {
    List<Id> operands;
    for (std::size_t i = 0; i < carries_.size(); ++i) {
      Var initial = carries_[i].initial;
      for (int k = 0; k < mesh_axes; ++k)
        if (auto const axis = static_cast<MeshAxis>(k);
            backward.replication(backward.outputs[i].node, axis) == Replication::varying)
          initial = vary(initial, axis, gradient_reduction(axis), n_.where);
      operands.push_back(initial.id);
    }
    for (Slice const& invariant : invariants_) operands.push_back(invariant.stacked.id);
    for (Slice const& slice : slices_)
      operands.push_back(slice.residual == none ? slice.stacked.id : n_.out(first_residual_ + slice.residual).id);
    Draft node = draft(Op::repeat, std::move(operands),
                       {shape_.length, static_cast<std::int64_t>(carries_.size()),
                        static_cast<std::int64_t>(invariants_.size()), static_cast<std::int64_t>(slices_.size()),
                        std::int64_t{!shape_.reversed}, static_cast<std::int64_t>(shape_.recompute)});
    node.body = n_.builder.add_body(backward);
    Var const repeat = detail::emit(n_.builder, std::move(node), n_.where);
    for (std::size_t i = 0; i < carries_.size(); ++i)
      if (n_.wants(carries_[i].operand)) n_.give(carries_[i].operand, result(repeat, static_cast<int>(i), n_.where));
    for (std::size_t i = 0; i < stacked_operands_.size(); ++i)
      n_.give(stacked_operands_[i], result(repeat, static_cast<int>(carries_.size() + i), n_.where));
  }

  Back const& n_;
  RepeatShape shape_;
  List<Id> forward_inputs_;
  List<Output> forward_outputs_;
  Builder outermost_;
  Builder body_{&outermost_};  // the gradient of a gradient has leaves of equal names
  Id forward_size_ = 0;
  List<Carry> carries_;
  List<Id> stacked_results_;    // in the body
  List<int> stacked_operands_;  // of the forward node: who receives them
  List<Slice> invariants_, slices_;
  List<Id> residuals_;
  List<char> again_;  // computed by the backward loop too; empty: nothing is
  int first_residual_ = 0;
};

constexpr void back_repeat(Back const& n) {
  BodyGradient gradient(n);
  gradient.run();
}

}  // namespace tutti::graph::detail
