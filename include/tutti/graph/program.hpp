// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A graph made ready to run: its steps and their memory plan. Sizes are fixed, memory is not bound yet, and one
/// program may be run by any number of executors.

#include <tutti/config.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/division.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/plan.hpp>
#include <tutti/graph/steps.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tutti::graph {

/// What a program's steps are made for. For IREE as for processors: what it runs is the graph as a StableHLO module
/// (graph/iree/program.hpp), the steps tell inputs, outputs and fields.
enum class Target : std::uint8_t { cpu, cuda, iree };

struct CompileOptions {
  bool fuse = true;                              ///< epilogues and elementwise chains
  bool share = true;                             ///< results in the place of operands, of outputs, of fields
  std::int64_t bucket_bytes = std::int64_t{4} << 20;  ///< of gradients reduced together
  Division division{};                                ///< of AdamW's updates; none for devices
  Target target = Target::cpu;
  bool narrow = true;  ///< on devices: what products round to bfloat16 is stored so, see graph/narrow.hpp
};

struct Program {
  Target target = Target::cpu;
  StepList list;
  MemoryPlan plan;

  /// Index in `entries`, -1 where there is none.
  static int find(List<Entry> const& entries, std::string_view name) noexcept {
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].name == name) return static_cast<int>(i);
    return -1;
  }
  bool has_input(std::string_view name) const noexcept { return find(list.inputs, name) >= 0; }
  bool has_output(std::string_view name) const noexcept { return find(list.outputs, name) >= 0; }
};

/// Errors  unavailable (an operation without a step), internal (a plan that does not hold: never seen by users).
/// Cost    milliseconds to tens of milliseconds; nothing of it is left for the run.
TUTTI_INLINE Program compile(Graph const& graph, CompileOptions const& options = {});

namespace detail {

inline std::string formula(Step const& step) {
  std::string text;
  for (auto const& instruction : step.instructions)
    text += (text.empty() ? "" : " ") + std::string(name(static_cast<Op>(instruction.op.number)));
  return text;
}

}  // namespace detail

/// The step table: number, operation, results, operands, bytes moved, source line; then what memory it needs.
inline std::string to_string(Program const& program) {
  StepList const& list = program.list;
  auto describe = [&](Ref const& ref) {
    if (!ref) return std::string("-");
    auto const home = list.home(ref.buffer);
    Buffer const& root = list[home.root];
    std::string text;
    if (root.pool == Pool::state) text = list.fields[static_cast<std::size_t>(root.entry)].name;
    if (root.pool == Pool::input) text = list.inputs[static_cast<std::size_t>(root.entry)].name;
    if (root.pool == Pool::output) text = list.outputs[static_cast<std::size_t>(root.entry)].name;
    if (root.pool == Pool::arena)
      text = "@" + std::to_string(program.plan.offset[static_cast<std::size_t>(ref.buffer)] + ref.offset);
    if (root.pool == Pool::communicator)
      text = "#" + std::to_string(program.plan.offset[static_cast<std::size_t>(ref.buffer)] + ref.offset);
    return text + (ref.dtype == DType::float32 ? "" : ":" + std::string(name(ref.dtype))) + to_string(ref.shape);
  };
  std::string out = "step  layer  operation                 MB  results <- operands\n";
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    Step const& step = list.steps[s];
    std::int64_t bytes = 0;
    std::string results, operands;
    for (Ref const& ref : step.writes) {
      bytes += ref ? ref.bytes() : 0;
      results += (results.empty() ? "" : " ") + describe(ref);
    }
    for (Ref const& ref : step.reads) {
      bytes += ref ? ref.bytes() : 0;
      operands += (operands.empty() ? "" : " ") + describe(ref);
    }
    char head[96];
    std::snprintf(head, sizeof head, "%4zu  %5s  %-20s %7.3f  ", s,
                  step.layer < 0 ? "" : std::to_string(step.layer).c_str(), std::string(name(step.kind)).c_str(),
                  static_cast<double>(bytes) / 1e6);
    out += head + results + " <- " + operands;
    if (step.kind == StepKind::elementwise) out += "  [" + detail::formula(step) + "]";
    if (step.gelu) out += "  [gelu]";
    if (step.product != DType::float32) out += concat("  [", tutti::name(step.product), "]");
    if (!step.where.empty()) out += "  " + step.where;
    out += "\n";
  }
  char tail[192];
  std::snprintf(tail, sizeof tail, "%zu steps; arena %.3f MB, communicator %.3f MB (%.3f MB without reuse)\n",
                list.steps.size(), static_cast<double>(program.plan.arena_bytes) / 1e6,
                static_cast<double>(program.plan.communicator_bytes) / 1e6,
                static_cast<double>(program.plan.unshared_bytes) / 1e6);
  return out + tail;
}

}  // namespace tutti::graph

#if TUTTI_BODIES
#include <tutti/graph/compile.hpp>
#endif
