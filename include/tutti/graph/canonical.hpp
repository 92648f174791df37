// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One numbering for every order in which the same graph may have been built, equality, and graphs frozen into arrays.
///
/// C++ does not fix the order in which `f(a(), b())` evaluates its arguments, so ids differ between compilers, and
/// between a constant expression and a run. Canonical graphs do not.

#include <tutti/graph/ir.hpp>
#include <tutti/graph/renumbering.hpp>

#include <array>
#include <bit>
#include <span>

namespace tutti::graph {

/// Nodes that `roots` need, operands first, in the order in which a depth-first walk finishes them.
constexpr List<Id> reachable_order(Graph const& graph, List<Id> const& roots) {
  List<Id> order;
  List<std::int32_t> next(graph.nodes.size(), 0);  // operand to visit next; count + 1 when finished
  List<Id> stack;
  for (Id root : roots) {
    stack.push_back(root);
    while (!stack.empty()) {
      Id const id = stack.back();
      auto const at = static_cast<std::size_t>(id);
      auto const operands = graph.operands(id);
      if (next[at] < static_cast<std::int32_t>(operands.size())) {
        Id const operand = operands[static_cast<std::size_t>(next[at]++)];
        if (next[static_cast<std::size_t>(operand)] == 0) stack.push_back(operand);
      } else {
        stack.pop_back();
        if (next[at] == static_cast<std::int32_t>(operands.size())) {
          ++next[at];
          order.push_back(id);
        }
      }
    }
  }
  return order;
}

/// The graph without dead nodes: listed leaves first, then everything else in the order in which a walk from the
/// outputs, then from the updates, finishes it. Bodies are canonical since their repeat was made.
constexpr Graph canonical(Graph const& graph, bool sources = true) {
  detail::Renumbering renumbering(graph, sources);
  Graph& to = renumbering.to;
  for (Id id : graph.inputs) to.inputs.push_back(renumbering.add(id));
  for (Id id : graph.scalars) to.scalars.push_back(renumbering.add(id));
  for (Parameter const& parameter : graph.parameters)
    to.parameters.push_back({renumbering.add(parameter.node), parameter.init, parameter.stacked});
  for (Id id : graph.states) to.states.push_back(renumbering.add(id));
  to.state_inits = graph.state_inits;
  List<Id> roots;
  for (Output const& output : graph.outputs) roots.push_back(output.node);
  for (Update const& update : graph.updates) roots.push_back(update.value);
  for (Id id : reachable_order(graph, roots)) renumbering.add(id);
  for (Output const& output : graph.outputs)
    to.outputs.push_back({renumbering.name(output.name), renumbering[output.node]});
  for (Update const& update : graph.updates)
    to.updates.push_back({renumbering[update.target], renumbering[update.value]});
  if (!sources)
    for (Graph& body : to.bodies) body = canonical(body, false);
  return std::move(renumbering.to);
}

namespace detail {

struct Writer {
  List<std::uint64_t> words;

  constexpr void put(std::uint64_t word) { words.push_back(word); }
  constexpr void put(std::int64_t word) { words.push_back(static_cast<std::uint64_t>(word)); }
  constexpr void put(std::int32_t word) { words.push_back(static_cast<std::uint32_t>(word)); }
  constexpr void put(double word) { words.push_back(std::bit_cast<std::uint64_t>(word)); }
  constexpr void put(char word) { words.push_back(static_cast<unsigned char>(word)); }
  static constexpr std::uint64_t hash(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
  }
  constexpr void put(Range range) {
    words.push_back(static_cast<std::uint64_t>(range.first) << 32 | static_cast<std::uint32_t>(range.count));
  }
  constexpr void put(Init const& init) {
    put(static_cast<std::int32_t>(init.kind));
    put(init.deviation);
  }
  constexpr void put(Parameter const& parameter) {
    put(parameter.node);
    put(parameter.init);
    put(std::int32_t{parameter.stacked});
  }
  constexpr void put(Output const& output) {
    put(output.name);
    put(output.node);
  }
  constexpr void put(Update const& update) {
    put(update.target);
    put(update.value);
  }
  constexpr void put(Type const& type) {
    put(static_cast<std::int32_t>(type.dtype) | std::int32_t{type.replication.bits()} << 8 |
        type.shape.rank() << 16);
    for (std::int64_t extent : type.shape) put(extent);
  }
  constexpr void put(Node const& node) {
    put(static_cast<std::int32_t>(node.op));
    put(node.operands);
    put(node.integers);
    put(node.reals);
    put(node.types);
    put(node.name);
    put(node.body);
    put(node.file);
    put(node.line);
    put(node.custom == nullptr ? std::uint64_t{0} : hash(node.custom->name));
  }
  template <class T>
  constexpr void put(List<T> const& values) {
    put(static_cast<std::uint64_t>(values.size()));
    for (T const& value : values) put(value);
  }
  constexpr void put(Graph const& graph) {
    put(graph.nodes), put(graph.inputs), put(graph.states), put(graph.scalars), put(graph.parameters),
        put(graph.state_inits);
    put(graph.outputs), put(graph.updates), put(graph.bodies);
    put(graph.operand_pool), put(graph.integer_pool), put(graph.real_pool), put(graph.type_pool), put(graph.names),
        put(graph.text);
  }
};

struct Reader {
  std::span<std::uint64_t const> words;
  std::size_t at = 0;

  constexpr std::uint64_t next() { return words[at++]; }
  constexpr void get(std::int64_t& word) { word = static_cast<std::int64_t>(next()); }
  constexpr void get(std::int32_t& word) { word = static_cast<std::int32_t>(static_cast<std::uint32_t>(next())); }
  constexpr void get(double& word) { word = std::bit_cast<double>(next()); }
  constexpr void get(char& word) { word = static_cast<char>(next()); }
  constexpr void get(Range& range) {
    std::uint64_t const word = next();
    range = {static_cast<std::int32_t>(word >> 32), static_cast<std::int32_t>(word & 0xffffffffu)};
  }
  constexpr void get(Init& init) {
    init.kind = static_cast<Init::Kind>(next());
    get(init.deviation);
  }
  constexpr void get(Parameter& parameter) {
    get(parameter.node);
    get(parameter.init);
    parameter.stacked = next() != 0;
  }
  constexpr void get(Output& output) {
    get(output.name);
    get(output.node);
  }
  constexpr void get(Update& update) {
    get(update.target);
    get(update.value);
  }
  constexpr void get(Type& type) {
    std::uint64_t const word = next();
    type.dtype = static_cast<DType>(word & 0xff);
    type.replication = Replications::of_bits(static_cast<std::uint8_t>(word >> 8 & 0xff));
    std::array<std::int64_t, Shape::max_rank> extents{};
    auto const rank = static_cast<std::size_t>(word >> 16);
    for (std::size_t axis = 0; axis < rank; ++axis) get(extents[axis]);
    type.shape = Shape::of(extents.data(), static_cast<std::int64_t>(rank));
  }
  constexpr void get(Node& node) {
    node.op = static_cast<Op>(next());
    get(node.operands);
    get(node.integers);
    get(node.reals);
    get(node.types);
    get(node.name);
    get(node.body);
    get(node.file);
    get(node.line);
    if (next() != 0)
      throw Error(ErrorKind::unavailable, "graph::thaw",
                  "a frozen graph cannot hold an operation from outside the library; make this graph where it runs");
  }
  template <class T>
  constexpr void get(List<T>& values) {
    values.resize(static_cast<std::size_t>(next()));
    for (T& value : values) get(value);
  }
  constexpr void get(Graph& graph) {
    get(graph.nodes), get(graph.inputs), get(graph.states), get(graph.scalars), get(graph.parameters),
        get(graph.state_inits);
    get(graph.outputs), get(graph.updates), get(graph.bodies);
    get(graph.operand_pool), get(graph.integer_pool), get(graph.real_pool), get(graph.type_pool), get(graph.names),
        get(graph.text);
  }
};

}  // namespace detail

/// The graph as integers, for freezing and comparing.
constexpr List<std::uint64_t> words_of(Graph const& graph) {
  detail::Writer writer;
  writer.put(graph);
  return std::move(writer.words);
}
constexpr Graph thaw(std::span<std::uint64_t const> words) {
  detail::Reader reader{words};
  Graph graph;
  reader.get(graph);
  return graph;
}

/// Same operations on same operands, whatever the order of construction and the source lines.
constexpr bool same(Graph const& a, Graph const& b) {
  return words_of(canonical(a, false)) == words_of(canonical(b, false));
}

namespace detail {
template <class Make>
inline constexpr std::size_t frozen_size = words_of(Make{}()).size();
}  // namespace detail

/// The words of the graph that `Make{}()` returns, made in constant expressions: a `static constexpr` array for the run
/// time to thaw. `Make` is a stateless function object. A large program is made in stages, each with the compiler's
/// whole budget of steps: one Make traces, the next thaws that and differentiates.
template <class Make>
constexpr auto freeze() {
  std::array<std::uint64_t, detail::frozen_size<Make>> frozen{};
  List<std::uint64_t> const words = words_of(Make{}());
  for (std::size_t i = 0; i < frozen.size(); ++i) frozen[i] = words[i];
  return frozen;
}

}  // namespace tutti::graph
