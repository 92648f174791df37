// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph as text: one node a line, bodies indented under their repeat.

#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>

#include <cstdio>
#include <string>

namespace tutti::graph {

namespace detail {

inline std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

inline void print(Graph const& graph, std::string const& indent, std::string& out) {
  for (Id id = 0; id < graph.size(); ++id) {
    Node const& node = graph[id];
    out += indent + "%" + std::to_string(id) + " = " + std::string(graph.op_name(id));
    if (node.name != none) out += " \"" + std::string(graph.name(id)) + "\"";
    out += "(";
    bool first = true;
    for (Id operand : graph.operands(id)) {
      out += (first ? "%" : ", %") + std::to_string(operand);
      first = false;
    }
    out += ")";
    if (node.integers.count != 0) {
      out += " {";
      for (std::size_t i = 0; i < graph.integers(id).size(); ++i)
        out += (i == 0 ? "" : ", ") + std::to_string(graph.integers(id)[i]);
      out += "}";
    }
    if (node.reals.count != 0) {
      out += " <";
      for (std::size_t i = 0; i < graph.reals(id).size(); ++i)
        out += (i == 0 ? "" : ", ") + short_number(graph.reals(id)[i]);
      out += ">";
    }
    if (node.op == Op::repeat && repeat_shape(graph, id).recompute != Recompute::none)
      out += " recompute " + std::string(name(repeat_shape(graph, id).recompute));
    out += " :";
    for (int i = 0; i < graph.results(id); ++i) {
      Type const& type = graph.type(id, i);
      out += (i == 0 ? " " : ", ") + std::string(tutti::name(type.dtype)) + " " + to_string(type.shape);
      for (int axis = 0; axis < mesh_axes; ++axis) {
        Replication const state = type.replication[static_cast<MeshAxis>(axis)];
        if (state == Replication::replicated) continue;
        out += " " + std::string(name(state));
        if (axis > 0) out += "(" + std::string(name(static_cast<MeshAxis>(axis))) + ")";
      }
    }
    if (node.line != 0) out += "  @" + std::string(graph.file(id)) + ":" + std::to_string(node.line);
    out += "\n";
    if (node.op == Op::repeat) print(graph.body(id), indent + "    ", out);
  }
  for (Update const& update : graph.updates)
    out +=
        indent + "update \"" + std::string(graph.name(update.target)) + "\" <- %" + std::to_string(update.value) + "\n";
  for (Output const& output : graph.outputs)
    out +=
        indent + "output \"" + std::string(graph.text_of(output.name)) + "\" = %" + std::to_string(output.node) + "\n";
}

}  // namespace detail

/// `%7 = linear(%3, %5, %6) : float32 (4, 64, 192)  @model.cpp:31`
inline std::string to_string(Graph const& graph) {
  std::string out;
  detail::print(graph, "", out);
  return out;
}

}  // namespace tutti::graph
