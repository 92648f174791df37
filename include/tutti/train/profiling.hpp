// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What `--profile` shows: where a step's time went, beside what this machine could do, and a trace of the last step.

#include <tutti/graph/profile.hpp>
#include <tutti/io/file.hpp>
#include <tutti/kernel/cpu/peak.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/console.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::train {

/// The ceilings of the threads of a context, measured now: some tens of milliseconds.
inline graph::Roofline measure_roofline(exec::Context& context) {
  using kernel::Product;
  return {.float32 = kernel::cpu::measure_peak_flops(context),
          .bfloat16 = kernel::cpu::measure_peak_flops(context, 3, Product::bfloat16),
          .bytes = kernel::cpu::measure_copy_bandwidth(context)};
}

/// The texts of all ranks, in their order. Ranks: all. Blocking.
inline std::vector<std::string> gathered_texts(comm::Port& port, std::string const& mine) {
  std::vector<double> lengths(static_cast<std::size_t>(port.size()), 0.0);
  lengths[static_cast<std::size_t>(port.rank())] = static_cast<double>(mine.size());
  parallel::all_reduce(port, lengths, comm::PortOp::sum);
  auto const most = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string padded = mine, all(most * lengths.size(), ' ');
  padded.resize(most, ' ');
  port.wait(port.start_all_gather(padded.data(), all.data(), static_cast<std::int64_t>(most), DType::byte,
                                  std::source_location::current()));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    texts.push_back(all.substr(most * rank, static_cast<std::size_t>(lengths[rank])));
  return texts;
}

/// `passes`: TrainStep::profiles. `out`: where the trace goes, as trace_rank_0000.json; empty: nowhere. Rank 0 shows
/// its own tables, and those of all stages where `pipeline` joins them.
/// Errors  io. Ranks: all of `pipeline`, else local
template <class Passes>
void report_profile(Console& console, Passes const& passes, graph::Roofline const& roof, int rank,
                    std::string const& out, comm::Port* pipeline = nullptr) {
  graph::Profile const& last = *passes.back().profile;
  std::string text =
      fmt::format("profile of rank {}, {}; roof: {:.0f} GFLOP/s fp32, {:.0f} bfloat16, copies {:.1f} GB/s", rank,
                  last.skips_first() ? "means of all steps but the first" : "of the only step", roof.float32 / 1e9,
                  roof.bfloat16 / 1e9, roof.bytes / 1e9);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (!passes[i].name.empty())
      text += fmt::format("\n{}, {}:", passes[i].name,
                          passes[i].runs == 1 ? "once a step" : fmt::format("{} times a step", passes[i].runs));
    else if (passes.size() > 1)
      text += i == 0                   ? std::string("\nfirst micro-step:")
              : i + 1 < passes.size() ? fmt::format("\neach of the {} micro-steps between:", passes[i].runs)
                                       : std::string("\nlast micro-step, with the update:");
    text += "\n" + passes[i].profile->table(roof);
  }
  if (pipeline == nullptr) console.line(text);
  else
    for (std::string const& stage : gathered_texts(*pipeline, text)) console.line(stage);
  if (out.empty()) return console.line("no trace is kept (give --out)");
  std::string const path = fmt::format("{}/trace_rank_{:04}.json", out, rank);
  io::write_file(path, last.trace(rank));
  console.line(fmt::format("trace of the last {}: ", pipeline != nullptr    ? "run of " + passes.back().name
                                                     : passes.size() > 1 ? std::string("micro-step")
                                                                            : std::string("step")) +
               path + " (open it in chrome://tracing or ui.perfetto.dev)");
}

}  // namespace tutti::train
