// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which values of a graph differ between ranks whose inputs do: for programs that are traced as if a rank were alone.

#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>

namespace tutti::graph {

/// By node. All inputs count as each rank's own; `inputs` says otherwise, one entry each.
constexpr List<bool> differing(Graph const& graph, List<bool> inputs = {}) {
  if (inputs.empty()) inputs.assign(graph.inputs.size(), true);
  List<bool> differs(graph.nodes.size(), false);
  auto const at = [](auto index) { return static_cast<std::size_t>(index); };
  for (std::size_t i = 0; i < inputs.size(); ++i) differs[at(graph.inputs[i])] = inputs[i];
  for (Id id = 0; id < graph.size(); ++id) {
    Op const op = graph.op(id);
    bool const agrees = op == Op::all_reduce || op == Op::broadcast || op == Op::all_gather;
    if (op == Op::input || (agrees && mesh_axis(graph, id) == MeshAxis::data)) continue;
    bool any = op == Op::rank || op == Op::reduce_scatter || op == Op::all_to_all || op == Op::send_receive ||
               state_update(graph, id) == StateUpdate::per_rank;
    for (Id operand : graph.operands(id)) any = any || differs[at(operand)];
    differs[at(id)] = any;
    if (op != Op::result || graph.op(graph.operand(id, 0)) != Op::repeat) continue;
    // What comes out of a loop, by its results; a value that is carried may differ from a later iteration on.
    Id const loop = graph.operand(id, 0);
    Graph const& body = graph.body(loop);
    List<bool> entering;
    for (Id operand : graph.operands(loop)) entering.push_back(differs[at(operand)]);
    auto const carried = at(repeat_shape(graph, loop).carried);
    for (bool changed = true; changed;) {
      changed = false;
      List<bool> const inside = differing(body, entering);
      for (std::size_t k = 0; k < carried; ++k)
        if (inside[at(body.outputs[k].node)] && !entering[k]) entering[k] = changed = true;
      differs[at(id)] = inside[at(body.outputs[at(graph.integer(id))].node)] ||
                        (at(graph.integer(id)) < carried && entering[at(graph.integer(id))]);
    }
  }
  return differs;
}

}  // namespace tutti::graph
