// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Values of a graph of which each rank of the tensor axis has all or a part, while the graph is rewritten; for
/// parallel/shard.hpp.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/op/table.hpp>
#include <tutti/graph/ops_indexing.hpp>
#include <tutti/parallel/shard_vocabulary.hpp>
#include <tutti/parallel/split.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::parallel::detail {

/// One graph or body, rewritten into a builder, node by node.
class ShardValues {
 public:
  /// `shares_tokens`: between divided products each rank has a share of the tokens, else all of them.
  ShardValues(graph::Graph const& from, graph::Builder& to, Splits const& splits, bool shares_tokens)
      : from_(from),
        to_(to),
        splits_(splits),
        ranks_(splits.ranks()),
        shares_tokens_(shares_tokens),
        values_(from.nodes.size()) {}

 protected:
  using Id = graph::Id;
  using Op = graph::Op;
  static constexpr graph::MeshAxis tensor = graph::MeshAxis::tensor;

  struct Value {
    Id id = graph::none;
    List<Split> splits{};   // of every result
    List<Id> results{};     // of a node that was written out, in the place of `id`
  };

  static std::size_t at(auto index) { return static_cast<std::size_t>(index); }
  Value const& value(Id id) const { return values_[at(id)]; }
  Split const& split(Id id) const { return value(id).splits[0]; }
  graph::Var var(Id id) { return {&to_, value(id).id}; }
  Id operand(Id id, int i) const { return from_.operand(id, i); }
  void set(Id id, Id made, List<Split> splits = {}) {
    while (static_cast<int>(splits.size()) < from_.results(id)) splits.push_back({});
    values_[at(id)] = {made, std::move(splits)};
  }
  void trace(Id id) { to_.copy_source(from_.source(id), from_[id].line); }

  /// Inputs, scalars, states and parameters. Those of which ranks of the axis have parts vary along it as well.
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
      graph::Replications known = from_.type(id).replication;
      if (split.divided()) known = known.with(splits_.axis(), graph::Replication::varying);
      set(id,
          to_.parameter(from_.name(id), part_of(from_.shape(id), split, ranks_), parameter.init, parameter.stacked,
                        std::source_location::current(), known)
              .id,
          {split});
    }
    for (std::size_t i = 0; i < from_.states.size(); ++i) {
      Id const id = from_.states[i];
      trace(id);
      set(id, to_.state(from_.name(id), from_.type(id), from_.state_inits[i], graph::state_update(from_, id)).id);
    }
  }

  [[noreturn]] void refuse(Id id, std::string const& what) const {
    throw Error(ErrorKind::unavailable, "tensor parallelism",
                concat("operation '", from_.op_name(id), "' (", from_.file(id), ":", std::to_string(from_[id].line),
                       ") ", what));
  }
  [[noreturn]] void refuse_split(Id id, Split const& split) const {
    refuse(id, concat("does not work on parts of axis ", split.axis,
                      " of its operand. Divide other parameters, or make the operand whole before it"));
  }

  /// Whether each rank has a part of an operand.
  bool is_divided(Id id) const {
    bool divided = false;
    for (Id operand : from_.operands(id))
      for (Split const& one : value(operand).splits) divided = divided || one.divided();
    return divided;
  }
  List<Id> operands(Id id) const {
    List<Id> made;
    for (Id operand : from_.operands(id)) made.push_back(value(operand).id);
    return made;
  }
  List<std::int64_t> integers(Id id) const { return {from_.integers(id).begin(), from_.integers(id).end()}; }
  /// The node over these operands, of which each rank has what `split` says of the whole result.
  Id made(Id id, List<Id> operands, List<std::int64_t> integers, Split const& split) {
    graph::Type type = from_.type(id);
    type.shape = part_of(type.shape, split, ranks_);
    graph::Draft draft = graph::draft(from_.op(id), std::move(operands), std::move(integers),
                                      {from_.reals(id).begin(), from_.reals(id).end()}, type);
    draft.custom = from_[id].custom;
    return to_.emit(std::move(draft));
  }
  void emit(Id id, List<Id> operands, Split const& split) {
    set(id, made(id, std::move(operands), integers(id), split), {split});
  }
  /// Addends on every rank, as their sum.
  graph::Var joined(Id addend) { return over_tensor_axis({&to_, addend}); }

  /// Whether a value is the same everywhere along the axis: constants, what is broadcast along it, and functions of
  /// such elements.
  bool is_even(Id id, int axis) const {
    Op const op = from_.op(id);
    if (op == Op::constant || op == Op::iota) return op == Op::constant || from_.integer(id) != axis;
    auto const of = from_.operands(id);
    if (op == Op::broadcast_in_dim) {
      auto const axes = from_.integers(id);
      for (std::size_t i = 0; i < axes.size(); ++i)
        if (axes[i] == axis && from_.shape(of[0])[static_cast<int>(i)] != 1) return false;
      return true;
    }
    return graph::info(op).kind == graph::OpClass::elementwise &&
           std::all_of(of.begin(), of.end(), [&](Id operand) { return is_even(operand, axis); });
  }
  /// What every rank has, used by each for itself: before it grows, so that its small gradient is what is summed.
  Id own_use(Id made) {
    if (!is_floating(to_.graph().dtype(made))) return made;
    return graph::vary({&to_, made}, tensor, graph::gradient_reduction(tensor)).id;
  }
  Id part_of_even(Id id, Split const& wanted) {
    if (graph::info(from_.op(id)).kind != graph::OpClass::elementwise) {
      List<Id> of = operands(id);
      for (Id& one : of) one = wanted.tokens ? own_use(one) : one;
      return made(id, std::move(of), integers(id), wanted);
    }
    List<Id> parts_of;
    for (Id operand : from_.operands(id)) parts_of.push_back(part_of_even(operand, wanted));
    return made(id, std::move(parts_of), integers(id), wanted);
  }
  /// The operand as its part: what is the same everywhere along the axis has one.
  Id localised(Id user, Id id, Split const& wanted) {
    if (split(id) == wanted || from_.shape(id).rank() == 0) return value(id).id;
    if (!split(id).divided() && is_even(id, wanted.axis)) return part_of_even(id, wanted);
    refuse(user, concat("meets parts of axis ", wanted.axis,
                        split(id).divided() ? " with an operand that is divided otherwise"
                                            : " with an operand that every rank has whole",
                        ", by '", from_.op_name(id), "' (", from_.file(id), ":", std::to_string(from_[id].line),
                        "). Divide both alike"));
  }
  Split first_split(Id id) const {
    for (Id operand : from_.operands(id))
      if (split(operand).divided()) return split(operand);
    return {};
  }
  void require_whole(Id id, int first) const {
    for (int i = first; i < static_cast<int>(from_.operands(id).size()); ++i)
      if (split(operand(id, i)).divided())
        refuse(id, concat("needs operand ", i, ", of which each rank has a part, whole"));
  }

  graph::Graph const& from_;
  graph::Builder& to_;
  Splits const& splits_;
  int ranks_;
  bool shares_tokens_;
  List<Value> values_;
};

}  // namespace tutti::parallel::detail
