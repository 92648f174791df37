// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph of bytes that anybody may have written (tutti/graph/file.hpp has the layout).

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/file_writer.hpp>
#include <tutti/graph/form.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::graph::detail {

/// Reads what anybody may have written: every count is bounded by the bytes that are there, every reference and type is
/// checked before it is used.
class FileReader {
 public:
  explicit FileReader(std::span<std::byte const> bytes) : bytes_(bytes) {}

  Graph read() {
    require_form(bytes_.size() >= file_magic.size() &&
                     std::memcmp(bytes_.data(), file_magic.data(), file_magic.size()) == 0,
                 "these bytes are no graph");
    at_ = file_magic.size();
    if (auto const version = get<std::uint32_t>(); version != file_version)
      malformed("version " + std::to_string(version) + " is unknown; this program reads " +
                std::to_string(file_version));
    Graph graph = canonical(graph_at(0));
    require_form(at_ == bytes_.size(), "there are bytes behind the graph");
    FileWriter again;
    again.header();
    again.graph(graph);
    require_form(std::equal(again.bytes.begin(), again.bytes.end(), bytes_.begin(), bytes_.end()),
                 "its parts do not stand in their order");
    return graph;
  }

 private:
  template <class T>
  T get() {
    require_form(bytes_.size() - at_ >= sizeof(T), "the bytes end too early");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  /// A length of what has `least` bytes an element.
  std::uint32_t count(std::size_t least) {
    auto const n = get<std::uint32_t>();
    require_form(n <= (bytes_.size() - at_) / least, "the bytes end too early");
    return n;
  }
  template <class T>
  List<T> list() {
    List<T> values;
    for (std::uint32_t n = count(sizeof(T)); n > 0; --n) values.push_back(get<T>());
    return values;
  }
  Init init() {
    auto const kind = get<std::uint8_t>();
    auto const deviation = get<double>();
    require_form(kind <= static_cast<std::uint8_t>(Init::Kind::normal) && deviation >= 0 && deviation < 1e30,
                 "an initial value is none");
    return {static_cast<Init::Kind>(kind), deviation};
  }
  std::int32_t string(std::uint32_t index, Graph const& graph) {
    require_form(index < graph.names.size(), "there is no such string");
    return static_cast<std::int32_t>(index);
  }
  std::int32_t string_or_none(std::uint32_t number, Graph const& graph) {
    return number == 0 ? none : string(number - 1, graph);
  }

  void strings(Graph& graph) {
    std::set<std::string, std::less<>> seen;
    for (std::uint32_t n = count(4); n > 0; --n) {
      List<char> const text = list<char>();
      bool plain = text.size() <= 4096;
      for (char const c : text) plain = plain && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
      require_form(plain, "a name is too long, or has characters that control terminals");
      require_form(seen.emplace(text.begin(), text.end()).second, "a string stands there twice");
      graph.names.push_back({static_cast<std::int32_t>(graph.text.size()), static_cast<std::int32_t>(text.size())});
      graph.text.append(text.begin(), text.end());
    }
  }
  static std::optional<Op> operation(std::string_view wanted) {
    for (int op = 0; op < op_count; ++op)
      if (name(static_cast<Op>(op)) == wanted) return static_cast<Op>(op);
    return std::nullopt;
  }
  Type type(Graph const& graph) {
    Type result;
    std::string_view const wanted = graph.text_of(string(get<std::uint32_t>(), graph));
    int dtype = 0;
    while (dtype < dtype_count && tutti::name(static_cast<DType>(dtype)) != wanted) ++dtype;
    if (dtype == dtype_count) malformed("dtype '" + std::string(wanted) + "' is unknown to this version");
    auto const replication = get<std::uint8_t>();
    require_form(Replications::are_bits(replication), "a replication state is none");
    List<std::int64_t> const extents = list<std::int64_t>();
    result.dtype = static_cast<DType>(dtype);
    result.replication = Replications::of_bits(replication);
    result.shape = Shape::of(extents.data(), static_cast<std::int64_t>(extents.size()));
    std::int64_t elements = 1;
    for (std::int64_t const extent : extents) elements = checked_multiply(elements, std::max<std::int64_t>(extent, 1));
    require_form(elements <= std::int64_t{1} << 48, "a tensor has more than 2^48 elements");
    return result;
  }

  Graph graph_at(int depth) {
    require_form(depth < 8, "bodies are nested too deeply");
    Graph graph;
    strings(graph);
    for (std::uint32_t n = count(32); n > 0; --n) graph.bodies.push_back(graph_at(depth + 1));
    std::int32_t bodies = 0;
    for (std::uint32_t n = count(36); n > 0; --n) {
      try {
        node(graph, bodies, depth);
      } catch (Error const& error) {
        throw Error(ErrorKind::format, "graph::read",
                    "node " + std::to_string(graph.size()) + (depth == 0 ? ": " : " of a body: ") + error.message());
      }
    }
    require_form(bodies == static_cast<std::int32_t>(graph.bodies.size()), "a body belongs to no repeat");
    lists(graph, depth);
    return graph;
  }

  void node(Graph& graph, std::int32_t& bodies, int depth) {
    Draft draft;
    std::string_view const wanted = graph.text_of(string(get<std::uint32_t>(), graph));
    auto const op = operation(wanted);
    if (!op) malformed("operation '" + std::string(wanted) + "' is unknown to this version");
    draft.op = *op;
    draft.name = string_or_none(get<std::uint32_t>(), graph);
    Node node;
    node.file = string_or_none(get<std::uint32_t>(), graph);
    auto const line = get<std::uint32_t>();
    require_form(line < (1u << 31), "a line is none");
    node.line = static_cast<std::int32_t>(line);
    if (auto const body = get<std::uint32_t>(); body != 0) {
      require_form(body == static_cast<std::uint32_t>(bodies) + 1, "bodies do not stand in the order of their repeats");
      draft.body = bodies++;
    }
    for (std::uint32_t const id : list<std::uint32_t>()) {
      require_form(id < static_cast<std::uint32_t>(graph.size()), "an operand does not stand before its user");
      draft.operands.push_back(static_cast<Id>(id));
    }
    draft.integers = list<std::int64_t>();
    draft.reals = list<double>();
    List<Type> types;
    for (std::uint32_t n = count(9); n > 0; --n) types.push_back(type(graph));
    require_form(!types.empty(), "it has no result");
    draft.type = types[0];
    require_form(depth == 0 || (draft.op != Op::parameter && draft.op != Op::state && draft.op != Op::scalar),
                 "a body has no parameters, states or scalars");
    check_form(graph, draft);
    List<Type> const inferred = infer(graph, draft, std::source_location::current());
    require_form(std::equal(types.begin(), types.end(), inferred.begin(), inferred.end()),
                 "its types are not what its operands make");
    node.op = draft.op;
    node.operands = pooled(graph.operand_pool, draft.operands);
    node.integers = pooled(graph.integer_pool, draft.integers);
    node.reals = pooled(graph.real_pool, draft.reals);
    node.types = pooled(graph.type_pool, types);
    node.name = draft.name;
    node.body = draft.body;
    graph.nodes.push_back(node);
  }

  Id id_of(Graph const& graph) {
    auto const id = get<std::uint32_t>();
    require_form(id < static_cast<std::uint32_t>(graph.size()), "there is no such node");
    return static_cast<Id>(id);
  }
  Id value_of(Graph const& graph) {
    Id const id = id_of(graph);
    require_form(graph.results(id) == 1 && graph.op(id) != Op::repeat,
                 "a node of several results is used through its results alone");
    return id;
  }
  void lists(Graph& graph, int depth) {
    std::vector<bool> listed(graph.nodes.size());
    auto const leaf = [&](Op op) {
      Id const id = id_of(graph);
      require_form(graph.op(id) == op && !listed[static_cast<std::size_t>(id)],
                   "a list of leaves names another node, or one twice");
      listed[static_cast<std::size_t>(id)] = true;
      return id;
    };
    for (std::uint32_t n = count(4); n > 0; --n) graph.inputs.push_back(leaf(Op::input));
    for (std::uint32_t n = count(4); n > 0; --n) graph.scalars.push_back(leaf(Op::scalar));
    for (std::uint32_t n = count(14); n > 0; --n) {
      Id const id = leaf(Op::parameter);
      Init const start = init();
      auto const stacked = get<std::uint8_t>();
      require_form(stacked <= 1 && (stacked == 0 || graph.shape(id).rank() > 0), "a parameter is stacked in no way");
      graph.parameters.push_back({id, start, stacked == 1});
    }
    for (std::uint32_t n = count(13); n > 0; --n) {
      graph.states.push_back(leaf(Op::state));
      graph.state_inits.push_back(init());
    }
    std::set<std::string_view> names;
    for (Id id = 0; id < graph.size(); ++id) {
      if (graph[id].name == none) continue;
      require_form(listed[static_cast<std::size_t>(id)], "a leaf is in no list");
      require_form(depth > 0 || names.insert(graph.name(id)).second, "two leaves have one name");
    }
    names.clear();
    for (std::uint32_t n = count(8); n > 0; --n) {
      std::int32_t const text = string(get<std::uint32_t>(), graph);
      require_form(depth > 0 || names.insert(graph.text_of(text)).second, "two outputs have one name");
      graph.outputs.push_back({text, value_of(graph)});
    }
    std::vector<bool> updated(graph.nodes.size());
    for (std::uint32_t n = count(8); n > 0; --n) {
      Id const target = id_of(graph), value = value_of(graph);
      require_form(depth == 0, "a body updates nothing");
      require_form((graph.op(target) == Op::parameter || graph.op(target) == Op::state) &&
                       !updated[static_cast<std::size_t>(target)],
                   "only parameters and states are updated, and once");
      updated[static_cast<std::size_t>(target)] = true;
      Type const &from = graph.type(value), &to = graph.type(target);
      bool same = from.dtype == to.dtype && from.shape == to.shape && !from.replication.any(Replication::partial);
      for (int axis = 0; axis < mesh_axes; ++axis)
        same = same && (to.replication[static_cast<MeshAxis>(axis)] == Replication::varying ||
                        from.replication[static_cast<MeshAxis>(axis)] == Replication::replicated);
      require_form(same, "an update has another type than what it updates");
      graph.updates.push_back({target, value});
    }
  }

  std::span<std::byte const> bytes_;
  std::size_t at_ = 0;
};

}  // namespace tutti::graph::detail
