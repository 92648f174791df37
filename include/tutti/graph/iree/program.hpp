// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph made ready for IREE: its StableHLO module, compiled for a device, and what has to be checked before a run.

#include <tutti/graph/iree/runner.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/stablehlo/export.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

namespace tutti::graph::iree {

/// An input whose elements are rows of a table, or classes: a module clamps or ignores what lies outside, where the
/// library's own kernels refuse it.
struct IndexBound {
  std::string input;
  std::int64_t limit = 0;  ///< elements are 0 to limit - 1
  bool may_be_ignored = false;
  std::int64_t ignored = 0;  ///< where `may_be_ignored`, this one too
};

/// Inputs and outputs, and the memory that it would take on processors, are those of the graph::Program; what runs is
/// the module.
struct Program : graph::Program {
  StablehloModule module;
  Runner::Compiled compiled;
  List<IndexBound> bounds;
};

/// Of inputs that reach such operands as they are.
inline List<IndexBound> index_bounds(Graph const& graph) {
  List<IndexBound> bounds;
  auto const add = [&](Id indices, std::int64_t limit, bool may_be_ignored, std::int64_t ignored) {
    if (graph.op(indices) == Op::input && graph.dtype(indices) == DType::int32)
      bounds.push_back({std::string(graph.name(indices)), limit, may_be_ignored, ignored});
  };
  for (Id id = 0; id < graph.size(); ++id) {
    switch (graph.op(id)) {
      case Op::gather: add(graph.operand(id, 1), graph.shape(graph.operand(id, 0))[0], false, 0); break;
      case Op::embedding: add(graph.operand(id, 0), graph.shape(graph.operand(id, 1))[0], false, 0); break;
      case Op::cross_entropy: {
        Shape const& logits = graph.shape(graph.operand(id, 0));
        add(graph.operand(id, 1), logits[logits.rank() - 1], true, graph.integers(id)[0]);
        break;
      }
      case Op::linear_cross_entropy: {
        std::int64_t const vocabulary = graph.integers(id)[1];
        add(graph.operand(id, 2), vocabulary > 0 ? vocabulary : graph.shape(graph.operand(id, 1))[0], true,
            graph.integers(id)[0]);
        break;
      }
      default: break;
    }
  }
  return bounds;
}

/// Compiles for the runner's device, or finds what was compiled before: one graph, one device, one module.
/// Errors    those of `to_stablehlo` and of Runner::compile; unavailable, for graphs that cross ranks: a runner is one
inline Program compile(Runner& runner, Graph const& graph,
                       std::source_location where = std::source_location::current()) {
  Program program;
  static_cast<graph::Program&>(program) = graph::compile(graph, {.target = Target::iree});
  for (Step const& step : program.list.steps)
    if (step.kind == StepKind::all_reduce_start || is_collective(step.kind) || step.kind == StepKind::rank)
      throw Error(ErrorKind::unavailable, "iree",
                  "the program crosses ranks, and IREE in a process of its own is one rank. Train with one rank, or by "
                  "--algorithm diloco, which crosses them outside of programs",
                  where);
  program.module = to_stablehlo(graph);
  program.compiled = runner.compile(program.module, where);
  program.bounds = index_bounds(graph);
  return program;
}

}  // namespace tutti::graph::iree
