// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is run: the sweep over collectives and sizes, and the goals.

#include "report.hpp"

#include <tutti/config.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tutti::bench {

/// The crews of this run; those that are not there are null.
struct Stage {
  Crew* processes = nullptr;
  Crew* threads = nullptr;
  Crew* other = nullptr;
  std::string library, other_library;
  int ranks = 2;
  bool shares_memory = true;  // the processes, on the node

  /// Who runs beside `backend`'s tutti, which comes first. Copies only where bandwidth and not latency decides.
  std::vector<Entry> entries(std::string const& backend, std::int64_t bytes) const {
    bool const on_threads = backend == "threads";
    Crew* const crew = on_threads ? threads : processes;
    std::vector<Entry> result{{crew, Contender::ours, "tutti"}};
    if (on_threads) result.push_back({crew, Contender::naive, "naive"});
    if (processes != nullptr) result.push_back({processes, Contender::raw, library});
    if (other != nullptr) result.push_back({other, Contender::raw, other_library});
    if (bytes >= 65536) {
      result.push_back({crew, Contender::copy, "memcpy"});
#if TUTTI_HAS_X86
      result.push_back({crew, Contender::stream, "streamed copy"});
#endif
    }
    return result;
  }
};

/// One size of one collective, both forms. Returns whether every answer was right.
inline bool sweep_size(Options const& o, Stage const& stage, Case what, Json& json) {
  auto const entries = stage.entries(o.backend, what.bytes());
  std::vector<Figures> forms[2];
  double bandwidth[2] = {};
  for (int form = 0; form < 2; ++form) {
    what.in_place = form == 1;
    if (!exists(what.collective, what.in_place) || o.form == (what.in_place ? "out" : "in")) continue;
    forms[form] = compete(o, what, entries);
    bandwidth[form] = copy_bandwidth(what, entries, forms[form]);
    add_rows(json, o.backend, what, entries, forms[form]);
  }
  bool right = true;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    bool const copies = entries[i].contender == Contender::copy || entries[i].contender == Contender::stream;
    std::string columns[2];
    bool any = false;
    for (std::size_t form = 0; form < 2; ++form) {
      what.in_place = form == 1;
      bool const ran = !forms[form].empty();
      Figures const* const own = ran ? &forms[form][i] : nullptr;
      columns[form] = form_columns(what, own, ran ? &forms[form][0] : nullptr, bandwidth[form], o.check != 0, copies);
      any = any || (ran && own->exists);
      right = right && (!ran || own->wrong == 0);
    }
    if (!any) continue;
    fmt::print("{:>12} {:>11} {:>8} {:>5} {:>4} {:>5}  {:18} | {} | {}\n", what.bytes(), what.count(),
               what.collective == Collective::barrier ? "none" : type_name(what.dtype),
               reduces(what.collective) ? name(what.op) : "none", has_root(what.collective) ? what.root : -1,
               what.cold ? "cold" : "warm", entries[i].label, columns[0], columns[1]);
  }
  std::fflush(stdout);
  return right;
}

inline bool sweep(Options const& o, Stage const& stage, Json& json) {
  bool right = true;
  for (Collective collective : o.collectives)
    for (DType dtype : collective == Collective::barrier ? std::vector{DType::int8} : o.types)
      for (Op op : reduces(collective) ? o.ops : std::vector{Op::sum}) {
        fmt::print("#\n# {}\n", name(collective));
        print_columns();
        bool const sizeless = collective == Collective::barrier;
        std::int64_t before = -1;
        for (std::int64_t bytes : sizeless ? std::vector<std::int64_t>{0} : o.sizes()) {
          Case what = sized({collective, op, dtype, false, false, o.root, stage.ranks, 0}, bytes);
          if (what.bytes() == before) continue;  // rounded to what the ranks can share
          before = what.bytes();
          if (o.warm() || sizeless) right = sweep_size(o, stage, what, json) && right;
          what.cold = true;
          if (o.cold() && !sizeless) right = sweep_size(o, stage, what, json) && right;
        }
      }
  return right;
}

/// One promise: a size range and the least ratio in time, of `Mpi` to raw MPI of its own library, of `Threads` to the
/// fastest of the MPI libraries.
struct Goal {
  std::int64_t from, to;
  double ratio;
};

/// All-reduce of float sums against raw MPI, each size in both forms and cache states, judged by the worse form. Cold
/// calls of more than a few pages are bound by memory whoever makes them, so that they are judged apart.
inline bool goal_sizes(Options o, Stage const& stage, std::string const& backend,
                       std::vector<std::int64_t> const& sizes, std::vector<Goal> const& goals, double least_efficiency,
                       Json& json) {
  bool right = true;
  o.backend = backend;
  std::string const title =
      backend == "threads" || stage.shares_memory ? backend : backend + " without shared memory";
  fmt::print("#\n# {}, all_reduce float sum, {} ranks. Ratios: time of the contender / time of tutti.\n", title,
             stage.ranks);
  fmt::print("#{:>11}  {:12} {:5} {:>10} {:>10} {:>6}  {}\n", "size (B)", "form", "cache", "time (us)", "p99 (us)",
             "eff", "ratios");
  for (std::int64_t bytes : sizes) {
    double worst_ratio[2] = {INFINITY, INFINITY}, worst_efficiency = INFINITY;
    for (bool cold : {false, true})
      for (bool in_place : {false, true}) {
        if ((cold ? !o.cold() : !o.warm()) || o.form == (in_place ? "out" : "in")) continue;
        Case const what =
            sized({Collective::all_reduce, Op::sum, DType::float32, in_place, cold, 0, stage.ranks, 0}, bytes);
        auto const entries = stage.entries(backend, bytes);
        auto const figures = compete(o, what, entries);
        add_rows(json, title, what, entries, figures);
        Figures const& ours = figures[0];
        std::string ratios;
        for (std::size_t i = 0; i < entries.size(); ++i) {
          if (figures[i].wrong != 0) {
            right = false;
            ratios += fmt::format("  {}: {} WRONG", entries[i].label, figures[i].wrong);
          }
          if (i == 0 || !figures[i].timed() || !ours.timed()) continue;
          double const ratio = figures[i].median / ours.median;
          ratios += fmt::format("  {} {:.2f}", entries[i].label, ratio);
          bool const judges = backend == "threads" || entries[i].crew == stage.processes;
          if (entries[i].contender == Contender::raw && judges)
            worst_ratio[cold] = std::min(worst_ratio[cold], ratio);
        }
        auto const share = efficiency(what, ours, copy_bandwidth(what, entries, figures));
        if (share && cold) worst_efficiency = std::min(worst_efficiency, *share);
        fmt::print("{:>12}  {:12} {:5} {:>10.2f} {:>10.2f} {:>6} {}\n", what.bytes(),
                   in_place ? "in place" : "out of place", cold ? "cold" : "warm", ours.median * 1e6, ours.p99 * 1e6,
                   share ? fmt::format("{:.2f}", *share) : "-", ratios);
      }
    for (Goal const& goal : goals)
      for (bool cold : {false, true})
        if (double const worst = worst_ratio[cold]; bytes >= goal.from && bytes <= goal.to && std::isfinite(worst))
          fmt::print("{:>12}  goal: {} x {} or better, {}; worse form {:.2f}: {}\n", bytes, goal.ratio,
                     backend == "threads" ? "MPI" : stage.library, cold ? "cold" : "warm", worst,
                     worst >= goal.ratio ? "met" : "MISSED");
    // Above the caches: two buffers of two ranks are 64 MiB from here on.
    if (least_efficiency > 0 && bytes >= 16 << 20 && std::isfinite(worst_efficiency))
      fmt::print("{:>12}  goal: memory efficiency {} or better, cold; worse form {:.2f}: {}\n", bytes, least_efficiency,
                 worst_efficiency, worst_efficiency >= least_efficiency ? "met" : "MISSED");
    std::fflush(stdout);
  }
  return right;
}

/// With two ranks the sizes from 8 B to 64 MiB, or the 8 bytes that ranks are judged by that share no memory; with more
/// ranks the 4 bytes of those that outnumber the processors.
inline bool goals(Options const& o, Stage const& stage, Json& json) {
  std::int64_t const kib = 1024, mib = 1024 * kib;
  bool right = true;
  if (stage.ranks > 2) {
    if (stage.processes == nullptr) throw std::runtime_error("this goal is against MPI: start it under mpiexec");
    return goal_sizes(o, stage, "mpi", {4}, {{4, 4, 100}}, 0, json);
  }
  if (!stage.shares_memory) return goal_sizes(o, stage, "mpi", {8}, {{8, 8, 0.4}}, 0, json);
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 8; bytes <= 64 * mib; bytes *= 2) sizes.push_back(bytes);
  if (stage.processes != nullptr)
    right = goal_sizes(o, stage, "mpi", sizes,
                       {{8, 8, 2}, {mib, 4 * mib, 5}, {4 * mib + 1, 32 * mib - 1, 3}, {32 * mib, 64 * mib, 5}}, 0.8,
                       json) &&
            right;
  return goal_sizes(o, stage, "threads", sizes, {{8, 64 * mib, 1}}, 0.8, json) && right;
}

/// The largest message of a run.
inline std::int64_t largest(Options const& o) {
  if (o.suite == "goals") return std::int64_t{64} << 20;
  if (o.suite == "messages") return std::int64_t{1} << 20;
  auto const sizes = o.sizes();
  return sizes.empty() ? o.max_bytes : sizes.back();
}

}  // namespace tutti::bench
