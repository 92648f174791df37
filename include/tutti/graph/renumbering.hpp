// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies of nodes of one graph in another, under new ids.

#include <tutti/graph/ir.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::graph::detail {

template <class T>
constexpr Range copied(List<T>& to, List<T> const& from, Range range) {
  Range const result{static_cast<std::int32_t>(to.size()), range.count};
  for (std::int32_t i = 0; i < range.count; ++i) to.push_back(from[static_cast<std::size_t>(range.first + i)]);
  return result;
}

/// Copies nodes of one graph into another under new ids.
class Renumbering {
 public:
  constexpr Renumbering(Graph const& from, bool sources)
      : from_(from), ids_(from.nodes.size(), none), names_(from.names.size(), none), sources_(sources) {}

  constexpr Id add(Id old) {
    Id& id = ids_[static_cast<std::size_t>(old)];
    if (id != none) return id;
    Node node = from_[old];
    Range const operands{static_cast<std::int32_t>(to.operand_pool.size()), node.operands.count};
    for (Id operand : from_.operands(old)) to.operand_pool.push_back(ids_[static_cast<std::size_t>(operand)]);
    node.operands = operands;
    node.integers = copied(to.integer_pool, from_.integer_pool, node.integers);
    node.reals = copied(to.real_pool, from_.real_pool, node.reals);
    node.types = copied(to.type_pool, from_.type_pool, node.types);
    if (node.op == Op::barrier) to.integer_pool[static_cast<std::size_t>(node.integers.first)] = barriers_++;
    node.name = name(node.name);
    node.file = sources_ ? name(node.file) : none;
    if (!sources_) node.line = 0;
    if (node.body != none) {
      to.bodies.push_back(from_.body(old));
      node.body = static_cast<std::int32_t>(to.bodies.size()) - 1;
    }
    to.nodes.push_back(node);
    id = to.size() - 1;
    return id;
  }
  /// The value of `old` comes from outside: an input, which keeps its name if it was one.
  constexpr Id add_input(Id old, std::int32_t otherwise) {
    Node node;
    node.op = Op::input;
    node.types = copied(to.type_pool, from_.type_pool, from_[old].types);
    node.name = name(from_.op(old) == Op::input ? from_[old].name : otherwise);
    if (sources_) {
      node.file = name(from_[old].file);
      node.line = from_[old].line;
    }
    to.nodes.push_back(node);
    return ids_[static_cast<std::size_t>(old)] = to.size() - 1;
  }
  /// From here on, the value of `old`, which is there already, behind a barrier.
  constexpr void add_barrier(Id old) {
    Id& id = ids_[static_cast<std::size_t>(old)];
    Node node = to[id];
    node.op = Op::barrier;
    node.operands = {static_cast<std::int32_t>(to.operand_pool.size()), 1};
    node.integers = {static_cast<std::int32_t>(to.integer_pool.size()), 1};
    node.types.count = 1;
    node.name = none;
    to.operand_pool.push_back(id);
    to.integer_pool.push_back(barriers_++);
    to.nodes.push_back(node);
    id = to.size() - 1;
  }
  constexpr Id operator[](Id old) const { return ids_[static_cast<std::size_t>(old)]; }
  constexpr std::int32_t name(std::int32_t old) {
    if (old == none) return none;
    std::int32_t& index = names_[static_cast<std::size_t>(old)];
    if (index == none) {
      Range const range = copied(to.text, from_.text, from_.names[static_cast<std::size_t>(old)]);
      to.names.push_back(range);
      index = static_cast<std::int32_t>(to.names.size()) - 1;
    }
    return index;
  }

  Graph to;

 private:
  Graph const& from_;
  List<Id> ids_;
  List<std::int32_t> names_;
  std::int64_t barriers_ = 0;
  bool sources_;
};

}  // namespace tutti::graph::detail
