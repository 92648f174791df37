// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What `--profile` shows: where a step's time went, beside what this machine could do, and a trace of the last step.

#include <tutti/graph/profile.hpp>
#include <tutti/io/file.hpp>
#include <tutti/kernel/cpu/peak.hpp>
#include <tutti/train/console.hpp>

#include <fmt/format.h>

#include <string>

namespace tutti::train {

/// The ceilings of the threads of a context, measured now: some tens of milliseconds.
inline graph::Roofline measure_roofline(exec::Context& context) {
  using kernel::Product;
  return {.float32 = kernel::cpu::measure_peak_flops(context),
          .bfloat16 = kernel::cpu::measure_peak_flops(context, 3, Product::bfloat16),
          .bytes = kernel::cpu::measure_copy_bandwidth(context)};
}

/// Local. `passes`: TrainStep::profiles. `out`: where the trace goes, as trace_rank_0000.json; empty: nowhere. Errors:
/// io.
template <class Passes>
void report_profile(Console& console, Passes const& passes, graph::Roofline const& roof, int rank,
                    std::string const& out) {
  graph::Profile const& last = *passes.back().profile;
  console.line(fmt::format("profile of rank {}, {}; roof: {:.0f} GFLOP/s fp32, {:.0f} bfloat16, copies {:.1f} GB/s",
                           rank, last.skips_first() ? "means of all steps but the first" : "of the only step",
                           roof.float32 / 1e9, roof.bfloat16 / 1e9, roof.bytes / 1e9));
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (passes.size() > 1)
      console.line(i == 0                   ? std::string("first micro-step:")
                   : i + 1 < passes.size() ? fmt::format("each of the {} micro-steps between:", passes[i].runs)
                                            : std::string("last micro-step, with the update:"));
    console.line(passes[i].profile->table(roof));
  }
  if (out.empty()) return console.line("no trace is kept (give --out)");
  std::string const path = fmt::format("{}/trace_rank_{:04}.json", out, rank);
  io::write_file(path, last.trace(rank));
  console.line(fmt::format("trace of the last {}step: ", passes.size() > 1 ? "micro-" : "") + path +
               " (open it in chrome://tracing or ui.perfetto.dev)");
}

}  // namespace tutti::train
