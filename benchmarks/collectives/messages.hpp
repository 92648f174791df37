// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The suite `messages`: the small calls that programs are made of, each beside its twin in raw MPI.

#include "suites.hpp"

#include <string>
#include <vector>

namespace tutti::bench {

struct MessageRow {
  char const* text;
  Collective collective;
  DType dtype;
  Op op;
  std::int64_t elements;  ///< of a grid all of them
};
inline constexpr MessageRow message_rows[] = {
    {"ping-pong, there and back, 8 bytes", Collective::ping_pong, DType::float64, Op::sum, 1},
    {"ping-pong, there and back, 64 KiB", Collective::ping_pong, DType::float64, Op::sum, 8192},
    {"send_recv of one double", Collective::send_recv, DType::float64, Op::sum, 1},
    {"heat step, 64 x 64 doubles", Collective::halo, DType::float64, Op::sum, 64 * 64},
    {"put of 1,000 doubles and a fence", Collective::put, DType::float64, Op::sum, 1000},
    {"all_reduce of 50,000 doubles, a lambda", Collective::all_reduce, DType::float64, Op::callable, 50000},
    {"broadcast of 1,000 doubles", Collective::broadcast, DType::float64, Op::sum, 1000},
};

/// Every row on each backend that there is, warm. Returns whether every answer was right.
inline bool messages(Options const& o, Stage const& stage, Json& json) {
  bool right = true;
  for (std::string const backend : {"mpi", "threads"}) {
    bool const on_threads = backend == "threads";
    Crew* const crew = on_threads ? stage.threads : stage.processes;
    if (crew == nullptr) continue;
    fmt::print(
        "#\n# {}, {} ranks. Ratios: median time of the contender / median time of tutti.\n"
        "#{:>39}  {:>10} {:>10}  {}\n",
        backend, stage.ranks, "", "time (us)", "p99 (us)", "ratios");
    for (MessageRow const& row : message_rows) {
      bool const in_place = row.collective == Collective::broadcast;
      Case const what = sized({row.collective, row.op, row.dtype, in_place, false, 0, stage.ranks, 0},
                              row.elements * static_cast<std::int64_t>(size_of(row.dtype)));
      std::vector<Entry> entries{{crew, Contender::ours, "tutti"}};
      if (on_threads) entries.push_back({crew, Contender::naive, "naive"});
      auto const add = [&](Crew* rival, std::string const& library) {
        if (rival == nullptr) return;
        entries.push_back({rival, Contender::raw, library});
        if (row.op == Op::callable) entries.push_back({rival, Contender::raw_sum, library + " MPI_SUM"});
      };
      add(stage.processes, stage.library);
      add(stage.other, stage.other_library);
      auto const figures = compete(o, what, entries);
      add_rows(json, backend, what, entries, figures);
      std::string ratios;
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (figures[i].wrong != 0) {
          right = false;
          ratios += fmt::format("  {}: {} WRONG", entries[i].label, figures[i].wrong);
        }
        if (i != 0 && figures[i].timed() && figures[0].timed())
          ratios += fmt::format("  {} {:.2f}", entries[i].label, figures[i].median / figures[0].median);
      }
      fmt::print("{:>40}  {:>10.3f} {:>10.3f}{}\n", row.text, figures[0].median * 1e6, figures[0].p99 * 1e6, ratios);
      std::fflush(stdout);
    }
  }
  return right;
}

}  // namespace tutti::bench
