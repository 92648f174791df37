// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameters in parts as a pass over the graph of a model, which knows nothing of it: each rank of the data axis has
/// some rows of every parameter, gathers it where it is used, layer by layer in a loop, and of its gradient receives
/// the average of its own rows. Moments, being made for parameters, follow.
/// Source  Rajbhandari et al. 2020 (arXiv 1910.02054), stages 2 and 3

#include <tutti/parallel/shard_values.hpp>

#include <cstdint>
#include <utility>

namespace tutti::parallel {

namespace detail {

/// A graph or a body, of which parameters, or the layers' slices of them, are parts.
class ParameterGathering : ShardValues {
 public:
  ParameterGathering(graph::Graph const& from, graph::Builder& to, Splits const& splits, bool again)
      : ShardValues(from, to, splits, false), again_(again) {}

  void run() {
    leaves();
    nodes();
    for (graph::Output const& output : from_.outputs)
      to_.output(from_.text_of(output.name), {&to_, whole(output.node)});
    for (graph::Update const& update : from_.updates) to_.update(var(update.target), {&to_, whole(update.value)});
  }

 private:
  void nodes() {
    for (Id id = 0; id < from_.size(); ++id) {
      if (value(id).id != graph::none) continue;
      trace(id);
      if (from_.op(id) == Op::repeat) {
        loop(id);
        continue;
      }
      List<Id> of;
      for (Id operand : from_.operands(id)) of.push_back(whole(operand));
      emit(id, std::move(of), {});
    }
  }
  /// The value that the whole graph has, gathered where each rank has a part. With `again` whoever reads it has a copy
  /// of its own, which ends with its use.
  Id whole(Id id) {
    if (!split(id).divided()) return value(id).id;
    graph::Var part = var(id);
    if (again_) {
      List<std::int64_t> const serial{static_cast<std::int64_t>(to_.graph().size())};
      part.id = to_.emit(graph::draft(Op::barrier, {part.id}, serial));
    }
    return gathered(part, split(id).axis).id;
  }
  /// Rows of all ranks along `axis`, the first or, of a Stack outside of its loop, the second one.
  graph::Var gathered(graph::Var part, int axis) const {
    if (axis == 0) return gathered(part);
    List<std::int64_t> turn{1, 0};
    for (int i = 2; i < part.shape().rank(); ++i) turn.push_back(i);
    return graph::transpose(gathered(graph::transpose(part, turn)), turn);
  }
  graph::Var gathered(graph::Var part) const {
    return graph::all_gather(part, graph::MeshAxis::data, ranks_, {.again = again_, .averages = true});
  }

  void loop(Id id) {
    graph::Graph const& before = from_.body(id);
    graph::RepeatShape const shape = graph::repeat_shape(from_, id);
    graph::Builder builder(&to_);
    ParameterGathering body(before, builder, splits_, again_);
    List<Id> outer, inputs;
    for (std::size_t i = 0; i < before.inputs.size(); ++i) {
      Id const input = before.inputs[i], of = operand(id, static_cast<int>(i));
      Split inner = split(of);
      // Along the layers of what is stacked by hand a part has no slice of each: it is gathered before the loop.
      bool const sliced = static_cast<int>(i) >= shape.carried + shape.invariants && inner.divided() && inner.axis > 0;
      outer.push_back(sliced ? value(of).id : whole(of));
      if (sliced) --inner.axis;
      else inner = {};
      body.trace(input);
      graph::Type const type = before.type(input);
      inputs.push_back(builder.input(before.name(input), type.dtype, part_of(type.shape, inner, ranks_),
                                     to_.graph().type(outer.back()).replication).id);
      body.set(input, sliced ? gathered({&builder, inputs.back()}).id : inputs.back());
    }
    body.nodes();
    for (graph::Output const& output : before.outputs)
      builder.output(before.text_of(output.name), {&builder, body.value(output.node).id});
    builder.order_inputs(std::move(inputs));
    graph::Draft draft = graph::draft(Op::repeat, std::move(outer), integers(id));
    draft.body = to_.add_body(canonical(builder.graph()));
    trace(id);
    set(id, to_.emit(std::move(draft)));
  }

  bool again_;
};

}  // namespace detail

/// Rows of every parameter, the axis of layers not counted, that `ranks` of the data axis divide; others stay whole.
inline Splits parameter_parts(graph::Graph const& model, int ranks,
                              std::source_location where = std::source_location::current()) {
  return Splits(model, {{"*", 0, {1}, true}}, ranks, where).along(graph::MeshAxis::data);
}

/// The graph of a rank that has its part of the parameters, the same on all ranks. `again`: what a loop gathered for a
/// layer is given up behind it, and gathered once more for the gradient (ZeRO 3); else it is kept until then (ZeRO 2).
/// The gradient of a part is averaged over ranks already.
/// Requires  `splits` are parameter_parts of this graph, before its gradient is taken
inline graph::Graph gather_parameters(graph::Graph const& whole, Splits const& splits, bool again) {
  graph::Builder builder;
  detail::ParameterGathering(whole, builder, splits, again).run();
  return canonical(builder.graph());
}

}  // namespace tutti::parallel
