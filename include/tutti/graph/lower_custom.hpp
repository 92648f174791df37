// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lowering of operations from outside the library.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/emit.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/steps.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::graph::lowering {

/// What a custom operation changes in place has no other use: every use of a state reads its value before the run.
inline void refuse_shared_updates(Graph const& graph, Id id) {
  std::uint32_t const updates = graph[id].custom->updates;
  for (std::size_t i = 0; updates >> i != 0; ++i) {
    if ((updates >> i & 1) == 0) continue;
    Id const state = graph.operand(id, static_cast<int>(i));
    std::ptrdiff_t uses = 0;
    for (Id user = 0; user < graph.size(); ++user)
      for (Id const operand : graph.operands(user)) uses += operand == state;
    for (Output const& output : graph.outputs) uses += output.node == state;
    for (Update const& update : graph.updates) uses += update.target == state;
    if (uses != 1)
      throw Error(ErrorKind::invalid_argument, std::string(graph.op_name(id)),
                  "it changes state '" + std::string(graph.name(state)) +
                      "' in place, which something else in the graph uses too. Give it a state of its own");
  }
}

inline Value lower_custom(Emitter& emit, Graph const& graph, Id id, List<Value> const& x) {
  refuse_shared_updates(graph, id);
  Type const& type = graph.type(id);
  List<Ref> reads;
  for (Value const& operand : x) reads.push_back(emit.contiguous(operand));
  Ref const y = emit.fresh(type.dtype, type.shape);
  Step& step = emit.push(StepKind::custom);
  step.custom = graph[id].custom;
  step.reals = {graph.reals(id).begin(), graph.reals(id).end()};
  step.reads = reads;
  step.writes = {y};
  return view_value(y);
}

}  // namespace tutti::graph::lowering
