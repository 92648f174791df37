// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The bytes of a graph (tutti/graph/file.hpp has the layout).

#include <tutti/core/concat.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::graph {

inline constexpr std::string_view file_magic = "TUTTIGRF";
inline constexpr std::uint32_t file_version = 1;

namespace detail {

class FileWriter {
 public:
  std::vector<std::byte> bytes;

  void header() {
    bytes.insert(bytes.end(), reinterpret_cast<std::byte const*>(file_magic.data()),
                 reinterpret_cast<std::byte const*>(file_magic.data()) + file_magic.size());
    put(file_version);
  }
  void graph(Graph const& g) {
    std::vector<std::string_view> strings;
    auto const index = [&](std::string_view text) {
      auto const at = static_cast<std::size_t>(std::find(strings.begin(), strings.end(), text) - strings.begin());
      if (at == strings.size()) strings.push_back(text);
      return static_cast<std::uint32_t>(at);
    };
    auto const text = [&](std::int32_t name) { return name == none ? 0 : 1 + index(g.text_of(name)); };
    // Strings stand first, in the order of their first use: nodes are written aside.
    FileWriter rest;
    rest.put(size(g.nodes));
    for (Id id = 0; id < g.size(); ++id) {
      Node const& node = g[id];
      if (node.op == Op::custom)
        throw Error(ErrorKind::unavailable, "graph::write",
                    concat("operation '", node.custom->name, "' (", g.file(id), ":", std::to_string(node.line),
                           ") is from outside of the library and exists in this program alone"));
      rest.put(index(name(node.op)));
      rest.put(text(node.name));
      rest.put(text(node.file));
      rest.put(static_cast<std::uint32_t>(node.line));
      rest.put(static_cast<std::uint32_t>(node.body + 1));
      rest.list(g.operands(id));
      rest.list(g.integers(id));
      rest.list(g.reals(id));
      rest.put(static_cast<std::uint32_t>(g.results(id)));
      for (int result = 0; result < g.results(id); ++result) {
        Type const& type = g.type(id, result);
        rest.put(index(tutti::name(type.dtype)));
        rest.put(type.replication.bits());
        rest.list(std::span(type.shape.begin(), static_cast<std::size_t>(type.shape.rank())));
      }
    }
    rest.list(std::span<Id const>(g.inputs.data(), g.inputs.size()));
    rest.list(std::span<Id const>(g.scalars.data(), g.scalars.size()));
    rest.put(size(g.parameters));
    for (Parameter const& parameter : g.parameters) {
      rest.put(static_cast<std::uint32_t>(parameter.node));
      rest.init(parameter.init);
      rest.put(static_cast<std::uint8_t>(parameter.stacked));
    }
    rest.put(size(g.states));
    for (std::size_t i = 0; i < g.states.size(); ++i) {
      rest.put(static_cast<std::uint32_t>(g.states[i]));
      rest.init(g.state_inits[i]);
    }
    rest.put(size(g.outputs));
    for (Output const& output : g.outputs) {
      rest.put(index(g.text_of(output.name)));
      rest.put(static_cast<std::uint32_t>(output.node));
    }
    rest.put(size(g.updates));
    for (Update const& update : g.updates) {
      rest.put(static_cast<std::uint32_t>(update.target));
      rest.put(static_cast<std::uint32_t>(update.value));
    }
    put(static_cast<std::uint32_t>(strings.size()));
    for (std::string_view string : strings) list(std::span<char const>(string));
    put(size(g.bodies));
    for (Graph const& body : g.bodies) graph(body);
    bytes.insert(bytes.end(), rest.bytes.begin(), rest.bytes.end());
  }

 private:
  template <class List>
  static std::uint32_t size(List const& list) {
    return static_cast<std::uint32_t>(list.size());
  }
  template <class T>
  void put(T value) {
    static_assert(std::endian::native == std::endian::little);
    auto const* const from = reinterpret_cast<std::byte const*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(T));
  }
  template <class T>
  void list(std::span<T const> values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (T const value : values) put(value);
  }
  void init(Init const& init) {
    put(static_cast<std::uint8_t>(init.kind));
    put(init.deviation);
  }
};

}  // namespace detail

}  // namespace tutti::graph
