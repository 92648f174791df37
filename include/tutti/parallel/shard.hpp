// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tensor parallelism as a pass over the graph of a model, which knows nothing of it: parameters are divided as rules
/// say, and from operation to operation follows what each rank has of every value. Where a value that all have meets a
/// part, a `vary` node makes its gradient the sum over ranks; where a product leaves addends, an all_reduce joins them.
/// Source  Shoeybi et al. 2019 (arXiv 1909.08053), whose f and g these two are; Xu et al. 2021 (arXiv 2105.04663) for
///         the propagation

#include <tutti/parallel/shard_operations.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::parallel {

namespace detail {

/// A graph or a body with its leaves and loops.
class Sharding : ShardOperations {
 public:
  using ShardOperations::ShardOperations;

  void run() {
    leaves();
    nodes();
    for (graph::Output const& output : from_.outputs) {
      as_whole(output.node);
      if (split(output.node).divided())
        refuse(output.node, concat("is the output '", from_.text_of(output.name), "', of which each rank has a part"));
      to_.output(from_.text_of(output.name), var(output.node));
    }
    for (graph::Update const& update : from_.updates) {
      as_whole(update.value);
      if (split(update.value).divided() || split(update.target).divided())
        refuse(update.value, concat("updates '", from_.name(update.target), "', of which each rank has a part"));
      to_.update(var(update.target), var(update.value));
    }
  }

 private:
  void nodes() {
    for (Id id = 0; id < from_.size(); ++id) {
      if (value(id).id != graph::none) continue;
      trace(id);
      bool const divided = is_divided(id) || (shares_tokens_ && from_.op(id) == Op::embedding);
      if (from_.op(id) == Op::result) {
        Value const& of = value(operand(id, 0));
        std::size_t const index = at(from_.integer(id));
        if (of.results.empty()) emit(id, operands(id), Split(of.splits[index]));
        else if (of.results[index] != graph::none) set(id, of.results[index]);
        else refuse(operand(id, 0), "was differentiated already. Divide the graph of the loss, then take its gradient");
      } else if (from_.op(id) == Op::repeat) {
        loop(id);
      } else if (divided) {
        divide(id);
      } else {
        emit(id, operands(id), {});
      }
    }
  }

  void loop(Id id) {
    graph::Graph const& before = from_.body(id);
    graph::RepeatShape const shape = graph::repeat_shape(from_, id);
    int const stacked = shape.carried + shape.invariants;
    List<Id> outer = operands(id);  // as the loop takes them
    List<Split> inner;              // as its body does
    for (std::size_t i = 0; i < before.inputs.size(); ++i) {
      Id const of = operand(id, static_cast<int>(i));
      inner.push_back(split(of));
      if (static_cast<int>(i) < stacked || !inner[i].divided()) continue;
      if (inner[i].tokens) outer[i] = gathered(of).id, inner[i] = {};
      else if (--inner[i].axis < 0) refuse(id, "runs over parts of its layers");
    }
    while (!looped(id, before, shape, outer, inner)) continue;
  }
  /// With a body that takes its inputs so. False: it has to take some otherwise, as `outer` and `inner` say now.
  bool looped(Id id, graph::Graph const& before, graph::RepeatShape const& shape, List<Id>& outer, List<Split>& inner) {
    graph::Builder builder(&to_);
    Sharding body(before, builder, splits_, shares_tokens_);
    List<Id> inputs;
    for (std::size_t i = 0; i < before.inputs.size(); ++i) {
      Id const input = before.inputs[i];
      body.trace(input);
      graph::Type const type = before.type(input);
      inputs.push_back(builder.input(before.name(input), type.dtype, part_of(type.shape, inner[i], ranks_),
                                     to_.graph().type(outer[i]).replication).id);
      body.set(input, inputs.back(), {inner[i]});
    }
    body.nodes();
    if (shares_tokens_ && takes_otherwise(id, before, shape, body, outer, inner)) return false;
    List<Split> splits;
    for (std::size_t i = 0; i < before.outputs.size(); ++i) {
      Id const node = before.outputs[i].node;
      bool const carries = static_cast<int>(i) < shape.carried;
      if (!carries) body.as_whole(node);
      else if (inner[i].tokens) body.set(node, body.as_share(node, inner[i]), {inner[i]});
      Split split = body.split(node);
      Id result = body.value(node).id;
      if (carries) {
        Id const carried = before.inputs[i];
        if (!(split == body.split(carried)))
          body.refuse(node, "ends an iteration of a loop with a value that is not divided as the one at its beginning");
        result = agreeing(builder, body.value(carried).id, result, id);
      } else if (split.divided()) {
        ++split.axis;
      }
      builder.output(before.text_of(before.outputs[i].name), {&builder, result});
      splits.push_back(std::move(split));
    }
    builder.order_inputs(std::move(inputs));
    graph::Draft draft = graph::draft(Op::repeat, std::move(outer), integers(id));
    draft.body = to_.add_body(canonical(builder.graph()));
    trace(id);
    set(id, to_.emit(std::move(draft)), std::move(splits));
    return true;
  }
  /// What comes out of an iteration as a share of tokens goes into the first one as such. A layer's parameter that
  /// every rank has whole and uses for its share alone is varied outside: one sum for the gradients of all layers.
  bool takes_otherwise(Id id, graph::Graph const& before, graph::RepeatShape const& shape, Sharding const& body,
                       List<Id>& outer, List<Split>& inner) {
    bool changed = false;
    for (std::size_t i = 0; i < at(shape.carried); ++i) {
      Split const& after = body.split(before.outputs[i].node);
      if (!after.tokens || inner[i].divided()) continue;
      inner[i] = after;
      outer[i] = as_share(operand(id, static_cast<int>(i)), after);
      changed = true;
    }
    graph::Graph const& made = body.to_.graph();
    for (std::size_t i = at(shape.carried + shape.invariants); i < outer.size(); ++i) {
      if (!only_varied(made, body.value(before.inputs[i]).id)) continue;
      outer[i] = own_use(outer[i]);
      changed = true;
    }
    return changed;
  }
  /// Whether each rank uses it for itself, and nobody otherwise.
  static bool only_varied(graph::Graph const& graph, Id id) {
    bool any = false;
    for (Id user = 0; user < graph.size(); ++user) {
      auto const of = graph.operands(user);
      if (std::find(of.begin(), of.end(), id) == of.end()) continue;
      if (graph.op(user) != Op::vary) return false;
      if (graph::mesh_axis(graph, user) != tensor && !only_varied(graph, user)) return false;
      any = true;
    }
    return any;
  }
  void as_whole(Id id) {
    if (split(id).tokens) set(id, gathered(id).id);
  }
  /// What is carried on has the states of replication that it had.
  Id agreeing(graph::Builder& builder, Id before, Id after, Id loop) const {
    auto const wanted = builder.graph().type(before).replication;
    for (int i = 0; i < graph::mesh_axes; ++i)
      if (auto const axis = static_cast<graph::MeshAxis>(i); wanted[axis] == graph::Replication::varying)
        after = graph::vary({&builder, after}, axis, graph::gradient_reduction(axis)).id;
    if (wanted != builder.graph().type(after).replication)
      refuse(loop, "ends an iteration with a value that ranks do not have alike, as they had it at its beginning");
    return after;
  }
};

}  // namespace detail

/// The graph as each rank of the tensor axis runs it, with its part of the parameters: the same on all of them.
/// Outputs, and what updates make, are whole. `shares_tokens`: what stands between divided products each rank does, and
/// keeps, for its share of the tokens alone (parallel/shard_tokens.hpp); a quarter more bytes are sent in training.
/// Requires  `splits` are of this graph's parameters
/// Errors    unavailable, naming operation and line, for what does not work on parts; configuration, in figures, for
///           heads, or tokens, that ranks do not divide.
inline graph::Graph shard(graph::Graph const& whole, Splits const& splits, bool shares_tokens = false) {
  graph::Builder builder;
  detail::Sharding(whole, builder, splits, shares_tokens).run();
  return canonical(builder.graph());
}

}  // namespace tutti::parallel
