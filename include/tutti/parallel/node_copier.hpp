// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parts of a graph into another: what passes over a traced model are made of.

#include <tutti/core/list.hpp>
#include <tutti/graph/ops.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string_view>
#include <utility>

namespace tutti::parallel::detail {

/// A state that holds a value of this type between two programs.
inline graph::Var state_of(graph::Builder& to, std::string_view name, graph::Type const& type) {
  bool const part = type.replication[graph::MeshAxis::data] == graph::Replication::varying;
  return to.state(name, type, graph::zeros(), part ? graph::StateUpdate::part : graph::StateUpdate::replicated);
}

/// Copies nodes of one graph into a builder of another, operands first.
class NodeCopier {
 public:
  using Id = graph::Id;

  NodeCopier(graph::Graph const& from, graph::Builder& to)
      : from_(from), to_(to), ids_(from.nodes.size(), graph::none) {}

  Id operator[](Id id) const { return ids_[static_cast<std::size_t>(id)]; }
  graph::Var var(Id id) const { return {&to_, (*this)[id]}; }
  void set(Id id, Id made) { ids_[static_cast<std::size_t>(id)] = made; }
  void trace(Id id) { to_.copy_source(from_.source(id), from_[id].line); }

  /// A node whose operands are there; with other integers, where they are said.
  Id copy(Id id, List<Id> operands) {
    return copy(id, std::move(operands), {from_.integers(id).begin(), from_.integers(id).end()});
  }
  Id copy(Id id, List<Id> operands, List<std::int64_t> integers) {
    trace(id);
    graph::Draft draft = graph::draft(from_.op(id), std::move(operands), std::move(integers),
                                      {from_.reals(id).begin(), from_.reals(id).end()}, from_.type(id));
    draft.custom = from_[id].custom;
    if (from_[id].body != graph::none) draft.body = to_.add_body(from_.body(id));
    return to_.emit(std::move(draft));
  }
  List<Id> operands(Id id) const {
    List<Id> made;
    for (Id operand : from_.operands(id)) made.push_back((*this)[operand]);
    return made;
  }
  /// As `copy`, and leaves as they are there.
  void add(Id id) {
    trace(id);
    switch (from_.op(id)) {
      case graph::Op::input:
        return set(id, to_.input(from_.name(id), from_.dtype(id), from_.shape(id), from_.type(id).replication).id);
      case graph::Op::scalar: return set(id, to_.scalar(from_.name(id), from_.dtype(id)).id);
      case graph::Op::parameter:
        for (graph::Parameter const& parameter : from_.parameters)
          if (parameter.node == id) add(parameter, from_.shape(id));
        return;
      case graph::Op::state:
        for (std::size_t i = 0; i < from_.states.size(); ++i)
          if (from_.states[i] == id)
            set(id, to_.state(from_.name(id), from_.type(id), from_.state_inits[i], graph::state_update(from_, id)).id);
        return;
      default: return set(id, copy(id, operands(id)));
    }
  }
  void add(graph::Parameter const& parameter, Shape const& shape) {
    trace(parameter.node);
    set(parameter.node, to_.parameter(from_.name(parameter.node), shape, parameter.init, parameter.stacked,
                                      std::source_location::current(), from_.type(parameter.node).replication).id);
  }

 private:
  graph::Graph const& from_;
  graph::Builder& to_;
  List<Id> ids_;
};

}  // namespace tutti::parallel::detail
