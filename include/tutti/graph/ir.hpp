// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph as a plain value: nodes in vectors, everything else in pools that nodes refer to by range. It can be built,
/// differentiated and compared in a constant expression, and copied like an int.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/node.hpp>
#include <tutti/graph/op.hpp>
#include <tutti/graph/replication.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::graph {

/// Whether an element of this type can be `value`. Integers have no fractions, and ends.
constexpr bool holds(DType dtype, double value) {
  if (is_floating(dtype)) return true;
  if (dtype == DType::boolean) return value == 0 || value == 1;
  bool const is_signed =
      dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64;
  double const half = static_cast<double>(std::uint64_t{1} << (8 * size_of(dtype) - 1));
  if (!(value >= (is_signed ? -half : 0) && value < (is_signed ? half : 2 * half))) return false;
  bool const small = value > -9e15 && value < 9e15;  // larger doubles have no fraction
  return !small || static_cast<double>(static_cast<std::int64_t>(value)) == value;
}

namespace detail {

/// Whether an element of a range equals `value`.
template <class Range, class T>
constexpr bool contains(Range const& range, T const& value) {
  for (auto const& element : range)
    if (element == value) return true;
  return false;
}

}  // namespace detail

/// Leaves that are listed keep their place in the lists, also when nothing uses them.
///
/// A body is a graph without parameters, states, scalars or updates. For a repeat node of c carried values, v
/// invariants and s stacked operands its inputs are, in this order: c carried, v invariants, s slices (stacked without
/// the first axis); its outputs: c next carried values (same types as the initial ones), then one value per stacked
/// result. Iteration i reads slice i and writes slice i of the stacked results; i runs from 0, or from L - 1 down when
/// `reversed` is set.
///
/// A node of several results (more than one in `types`), and any repeat, is used through `result` nodes alone; a result
/// that no node projects is not wanted.
struct Graph {
  List<Node> nodes;
  List<Id> inputs, states, scalars;
  List<Parameter> parameters;
  List<Init> state_inits;  ///< parallel to states
  List<Output> outputs;
  List<Update> updates;
  List<Graph> bodies;

  // Pools.
  List<Id> operand_pool;
  List<std::int64_t> integer_pool;
  List<double> real_pool;
  List<Type> type_pool;
  List<Range> names;
  List<char> text;

  constexpr Id size() const noexcept { return static_cast<Id>(nodes.size()); }
  constexpr Node const& operator[](Id id) const noexcept { return nodes[static_cast<std::size_t>(id)]; }
  constexpr Op op(Id id) const noexcept { return (*this)[id].op; }
  /// Type of the only, or of the first, result.
  constexpr Type const& type(Id id, int result = 0) const noexcept {
    return type_pool[static_cast<std::size_t>((*this)[id].types.first + result)];
  }
  constexpr Shape const& shape(Id id) const noexcept { return type(id).shape; }
  constexpr DType dtype(Id id) const noexcept { return type(id).dtype; }
  constexpr Replication replication(Id id, MeshAxis axis = MeshAxis::data) const noexcept {
    return type(id).replication[axis];
  }
  constexpr int results(Id id) const noexcept { return (*this)[id].types.count; }

  constexpr std::span<Id const> operands(Id id) const noexcept { return part(operand_pool, (*this)[id].operands); }
  constexpr Id operand(Id id, int index) const noexcept { return operands(id)[static_cast<std::size_t>(index)]; }
  constexpr std::span<std::int64_t const> integers(Id id) const noexcept {
    return part(integer_pool, (*this)[id].integers);
  }
  constexpr std::int64_t integer(Id id, int index = 0) const noexcept {
    return integers(id)[static_cast<std::size_t>(index)];
  }
  constexpr std::span<double const> reals(Id id) const noexcept { return part(real_pool, (*this)[id].reals); }
  constexpr double real(Id id, int index = 0) const noexcept { return reals(id)[static_cast<std::size_t>(index)]; }
  constexpr Graph const& body(Id id) const noexcept { return bodies[static_cast<std::size_t>((*this)[id].body)]; }

  /// Text of an entry of the name pool; empty for `none`.
  constexpr std::string_view text_of(std::int32_t name) const noexcept {
    if (name == none) return {};
    Range const range = names[static_cast<std::size_t>(name)];
    return {text.data() + range.first, static_cast<std::size_t>(range.count)};
  }
  constexpr std::string_view name(Id id) const noexcept { return text_of((*this)[id].name); }
  /// As printed and in messages. A template, as what it asks: graph/op/table.hpp.
  template <class = void>
  constexpr std::string_view op_name(Id id) const noexcept {
    return op(id) == Op::custom ? (*this)[id].custom->name : graph::name(op(id));
  }
  /// The file of the user's line; the ranges around it, "decoder/*/attention" (see Builder::scope); and both as nodes
  /// keep them, "decoder/*/attention @ model.cpp", which Builder::copy_source takes.
  constexpr std::string_view file(Id id) const noexcept {
    std::size_t const end = source(id).find(scope_end);
    return end == std::string_view::npos ? source(id) : source(id).substr(end + scope_end.size());
  }
  constexpr std::string_view scope(Id id) const noexcept {
    std::size_t const end = source(id).find(scope_end);
    return end == std::string_view::npos ? std::string_view() : source(id).substr(0, end);
  }
  constexpr std::string_view source(Id id) const noexcept { return text_of((*this)[id].file); }
  static constexpr std::string_view scope_end = " @ ";

  /// Node of the output, parameter, state, input or scalar of that name; `none` where there is none.
  constexpr Id find_output(std::string_view wanted) const noexcept {
    for (Output const& output : outputs)
      if (text_of(output.name) == wanted) return output.node;
    return none;
  }
  constexpr Id find_leaf(std::string_view wanted) const noexcept {
    for (Id id = 0; id < size(); ++id)
      if ((*this)[id].name != none && name(id) == wanted) return id;
    return none;
  }
};

/// What was said where the state was made; of parameters, that they are replicated.
constexpr StateUpdate state_update(Graph const& graph, Id id) noexcept {
  if (graph.op(id) == Op::state && graph.replication(id) == Replication::varying && graph.integers(id).empty())
    return StateUpdate::per_rank;
  return graph.op(id) == Op::state && !graph.integers(id).empty() ? static_cast<StateUpdate>(graph.integer(id))
                                                                  : StateUpdate::replicated;
}

/// The integers of a repeat node by name.
struct RepeatShape {
  std::int64_t length = 0;
  int carried = 0, invariants = 0, stacked = 0;
  bool reversed = false;
  Recompute recompute = Recompute::none;
};
constexpr RepeatShape repeat_shape(Graph const& graph, Id id) noexcept {
  auto const values = graph.integers(id);
  return {values[0], static_cast<int>(values[1]), static_cast<int>(values[2]), static_cast<int>(values[3]),
          values[4] != 0, static_cast<Recompute>(values[5])};
}

/// A repeat with this policy.
constexpr void set_recompute(Graph& graph, Node const& repeat, Recompute policy) noexcept {
  graph.integer_pool[static_cast<std::size_t>(repeat.integers.first) + 5] = static_cast<std::int64_t>(policy);
}
/// Every repeat of the graph and of its bodies with this policy, but those that are to compute whole blocks again.
constexpr void set_recompute(Graph& graph, Recompute policy) noexcept {
  for (Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == Op::repeat && repeat_shape(graph, id).recompute != Recompute::block)
      set_recompute(graph, graph[id], policy);
  for (Graph& body : graph.bodies) set_recompute(body, policy);
}

/// Every dropout of the graph and of its bodies lets everything pass: for evaluation.
constexpr void stop_dropout(Graph& graph) {
  for (Node& node : graph.nodes)
    if (node.op == Op::dropout) {
      node.reals = {static_cast<std::int32_t>(graph.real_pool.size()), 1};
      graph.real_pool.push_back(0);
    }
  for (Graph& body : graph.bodies) stop_dropout(body);
}

/// Integers of an operation of ranks before that of its axis.
constexpr std::size_t port_integers(Op op) noexcept {
  return op == Op::partial || op == Op::rank ? 0 : op == Op::reduce_scatter ? 2 : op == Op::send_receive ? 3 : 1;
}
/// The axis of the mesh along which an operation of ranks works: its last integer, where it has one more than it needs;
/// else that of data.
constexpr MeshAxis mesh_axis(Graph const& graph, Id id) noexcept {
  auto const values = graph.integers(id);
  std::size_t const at = port_integers(graph.op(id));
  return values.size() > at ? static_cast<MeshAxis>(values[at]) : MeshAxis::data;
}
/// Of a send_receive: the rank `by` behind `rank`; -1 where there is none.
constexpr std::int64_t neighbour(std::int64_t rank, std::int64_t by, bool wraps, std::int64_t ranks) noexcept {
  std::int64_t const other = rank + by;
  if (wraps) return (other % ranks + ranks) % ranks;
  return other >= 0 && other < ranks ? other : -1;
}
/// What an all_gather says of its gradient.
struct Gathering {
  bool again = false;     ///< a loop keeps the operand for it, not the result, which it gathers anew
  bool averages = false;  ///< cotangents are those of each rank's own loss, and the losses' average is what counts

  constexpr std::int64_t bits() const noexcept { return std::int64_t{again} + 2 * std::int64_t{averages}; }
};
constexpr Gathering gathering(Graph const& graph, Id id) noexcept {
  if (graph.op(id) != Op::all_gather || graph.integers(id).size() < 3) return {};
  return {(graph.integer(id, 2) & 1) != 0, (graph.integer(id, 2) & 2) != 0};
}
/// Integers of such an operation.
constexpr List<std::int64_t> along(MeshAxis axis, List<std::int64_t> integers) {
  if (axis != MeshAxis::data) integers.push_back(static_cast<std::int64_t>(axis));
  return integers;
}

/// The integers of a dot_general node by name.
struct DotShape {
  std::span<std::int64_t const> batch_a, batch_b, contract_a, contract_b;
};
constexpr DotShape dot_shape(Graph const& graph, Id id) noexcept {
  auto const values = graph.integers(id);
  auto const batch = static_cast<std::size_t>(values[0]), contracted = static_cast<std::size_t>(values[1]);
  return {values.subspan(2, batch), values.subspan(2 + batch, batch), values.subspan(2 + 2 * batch, contracted),
          values.subspan(2 + 2 * batch + contracted, contracted)};
}

constexpr bool is_product(Op op) noexcept {
  return op == Op::dot_general || op == Op::linear || op == Op::linear_cross_entropy || op == Op::attention ||
         op == Op::attention_gradient;
}
/// The type to which a product's operands are rounded before they are multiplied: the last of its integers, where it
/// has one more than it needs. Sums, and the result, are in the type of the operands.
constexpr DType product_type(Op op, std::span<std::int64_t const> integers) noexcept {
  std::int64_t const needed = op == Op::linear        ? 0
                              : op != Op::dot_general ? 2
                                                      : 2 + 2 * (integers[0] + integers[1]);
  return static_cast<std::int64_t>(integers.size()) > needed ? static_cast<DType>(integers.back()) : DType::float32;
}
constexpr DType product_type(Graph const& graph, Id id) noexcept {
  return product_type(graph.op(id), graph.integers(id));
}

}  // namespace tutti::graph
