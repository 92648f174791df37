// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tensor parallelism as a pass over the graph of a model, which knows nothing of it: parameters are divided as rules
/// say, and from operation to operation follows what each rank has of every value. Where a value that all have meets a
/// part, a `vary` node makes its gradient the sum over ranks; where a product leaves addends, an all_reduce joins them.
/// Source  Shoeybi et al. 2019 (arXiv 1909.08053), whose f and g these two are; Xu et al. 2021 (arXiv 2105.04663) for
///         the propagation

#include <tutti/parallel/shard_operations.hpp>

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
      if (split(output.node).divided())
        refuse(output.node, concat("is the output '", from_.text_of(output.name), "', of which each rank has a part"));
      to_.output(from_.text_of(output.name), var(output.node));
    }
    for (graph::Update const& update : from_.updates) {
      if (split(update.value).divided() || split(update.target).divided())
        refuse(update.value, concat("updates '", from_.name(update.target), "', of which each rank has a part"));
      to_.update(var(update.target), var(update.value));
    }
  }

 private:
  void leaves() {
    for (Id id : from_.inputs) {
      trace(id);
      set(id, to_.input(from_.name(id), from_.dtype(id), from_.shape(id), from_.type(id).replication).id);
    }
    for (Id id : from_.scalars) {
      trace(id);
      set(id, to_.scalar(from_.name(id), from_.dtype(id)).id);
    }
    for (graph::Parameter const& parameter : from_.parameters) {
      Id const id = parameter.node;
      trace(id);
      Split const& split = splits_.of(from_.name(id));
      set(id,
          to_.parameter(from_.name(id), part_of(from_.shape(id), split, ranks_), parameter.init, parameter.stacked,
                        std::source_location::current(), split.divided() ? parts : graph::Replications())
              .id,
          {split});
    }
    for (std::size_t i = 0; i < from_.states.size(); ++i) {
      Id const id = from_.states[i];
      trace(id);
      set(id, to_.state(from_.name(id), from_.type(id), from_.state_inits[i], graph::state_update(from_, id)).id);
    }
  }

  void nodes() {
    for (Id id = 0; id < from_.size(); ++id) {
      if (value(id).id != graph::none) continue;
      trace(id);
      bool divided = false;
      for (Id operand : from_.operands(id))
        for (Split const& one : value(operand).splits) divided = divided || one.divided();
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
    graph::Builder builder(&to_);
    Sharding body(before, builder, splits_);
    List<Id> inputs;
    int const stacked = shape.carried + shape.invariants;
    for (std::size_t i = 0; i < before.inputs.size(); ++i) {
      Id const input = before.inputs[i], outer = operand(id, static_cast<int>(i));
      Split inner = split(outer);
      if (static_cast<int>(i) >= stacked && inner.divided() && --inner.axis < 0)
        refuse(id, "runs over parts of its layers");
      body.trace(input);
      graph::Type const type = before.type(input);
      inputs.push_back(builder.input(before.name(input), type.dtype, part_of(type.shape, inner, ranks_),
                                     to_.graph().type(value(outer).id).replication).id);
      body.set(input, inputs.back(), {inner});
    }
    body.nodes();
    List<Split> splits;
    for (std::size_t i = 0; i < before.outputs.size(); ++i) {
      Id const node = before.outputs[i].node;
      Split split = body.split(node);
      Id result = body.value(node).id;
      if (static_cast<int>(i) < shape.carried) {
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
    graph::Draft draft = graph::draft(Op::repeat, operands(id), integers(id));
    draft.body = to_.add_body(canonical(builder.graph()));
    trace(id);
    set(id, to_.emit(std::move(draft)), std::move(splits));
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
/// Outputs, and what updates make, are whole.
/// Requires  `splits` are of this graph's parameters
/// Errors    unavailable, naming operation and line, for what does not work on parts; configuration, in figures, for
///           heads that ranks do not divide.
inline graph::Graph shard(graph::Graph const& whole, Splits const& splits) {
  graph::Builder builder;
  detail::Sharding(whole, builder, splits).run();
  return canonical(builder.graph());
}

}  // namespace tutti::parallel
