// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is printed: the head that says where and how was measured, nccl-tests' table with a line for each contender,
/// and the JSON rows.

#include "../machine.hpp"
#include "statistics.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::bench {

/// Bytes of the last-level cache as the system reports it; 0 when it does not.
inline std::int64_t last_level_cache() {
  long const third = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return third > 0 ? third : std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
}
inline std::string mebibytes(std::int64_t bytes) { return fmt::format("{} MiB", (bytes + (1 << 19)) >> 20); }

/// Bytes of each rank's arena: cold buffers rotate through all of it.
inline std::int64_t arena_bytes(Options const& o, int ranks, std::int64_t largest) {
  std::int64_t const slot = Arena::slot_bytes(largest);
  if (!o.cold()) return slot;
  std::int64_t const wanted = 4 * last_level_cache() + (std::int64_t{64} << 20);
  return std::max(2 * slot, std::min(wanted, o.memory) / ranks);
}

/// "MPICH 4.0.2" of "MPICH Version: 4.0.2", "Open MPI v4.1.4" of "Open MPI v4.1.4, package: ...".
inline std::string short_name(std::string library) {
  library.resize(std::min(library.find(','), library.size()));
  std::string_view const words = " Version:";
  if (auto const at = library.find(words); at != std::string::npos) library.erase(at, words.size());
  return library;
}

struct Head {
  int ranks = 2, processors = 1;
  std::string backend, library, other;
  bool shared_heap = false;
  std::int64_t arena = 0;
};
inline void print_head(Options const& o, Head const& head) {
  int const processors = head.processors;
  fmt::print("# tutti-perf {}.{}.{}, {}; {}{}\n", version_major, version_minor, version_patch, compiler_name(),
             head.library.empty() ? "no job of MPI" : head.library,
             head.other.empty() ? "" : "; other MPI: " + head.other);
  fmt::print("# {}, {} processors for {} ranks{}\n", processor_name(), processors, head.ranks,
             head.ranks > processors
                 ? ": RANKS OUTNUMBER PROCESSORS. MPI libraries spin while they wait, which flatters tutti here"
                 : ", each bound to one");
  double const load = load_average();
  if (load > 1)
    fmt::print(
        "# load average {:.1f} in the last minute: where others use the processors, a rank waits for its turn and "
        "times say little\n",
        load);
  fmt::print("# backend {}, buffers {}\n", head.backend,
             o.private_memory   ? "in ordinary tensors"
             : head.shared_heap ? "on the communicator's heap, which the ranks share"
                                : "on the communicator's heap, which is private memory on this backend");
  if (o.cold()) {
    std::int64_t const all = head.arena * head.ranks, wanted = 4 * last_level_cache();
    fmt::print("# cold: buffers rotate through {} in all; {} x the last-level cache of {} as the system reports it{}\n",
               mebibytes(all), fmt::format("{:.1f}", static_cast<double>(all) / static_cast<double>(wanted) * 4),
               mebibytes(last_level_cache()),
               all < wanted ? ". Below 4 x, what is cold may still be found there: --memory raises the limit" : "");
  }
  fmt::print(
      "# a sample: barrier, then one call, or calls for about 20 us where one is shorter; its time is the slowest "
      "rank's, per call.\n"
      "# median and p99 (nearest rank: with under 100 samples the largest) of up to {} samples in {} rounds, "
      "contenders "
      "in turn, answers {}\n"
      "# eff: least bytes that the operation must move / (time x copy bandwidth of all ranks, same bytes, same cache "
      "state); from 64 KiB\n"
      "# x: time of the contender / time of tutti; above 1 tutti is faster\n",
      o.samples * o.rounds, o.rounds, o.check != 0 ? "verified first" : "NOT verified (--check 0)");
}

/// Rows of JSON, one object a line; nothing where no file was asked for.
class Json {
 public:
  explicit Json(std::string const& path) : path_(path) {
    if (!path.empty()) file_.reset(std::fopen(path.c_str(), "w"));
    if (!path.empty() && !file_) throw std::runtime_error("--json " + path + ": " + std::strerror(errno));
  }
  /// A ratio above 1 means that tutti is better.
  void row(std::string const& name, std::int64_t bytes, double ours, double rival, double ratio, char const* unit) {
    if (!file_) return;
    nlohmann::ordered_json const object{{"name", name},   {"bytes", bytes}, {"ours", ours},
                                        {"rival", rival}, {"ratio", ratio}, {"unit", unit}};
    std::string const line = object.dump() + "\n";
    if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
      throw std::runtime_error("--json " + path_ + ": " + std::strerror(errno));
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// "all_reduce float sum in place warm"; words that say nothing for this collective are left out.
inline std::string title(Case const& c) {
  std::string text(name(c.collective));
  if (c.collective == Collective::barrier) return text;
  text += " " + std::string(type_name(c.dtype));
  if (reduces(c.collective)) text += " " + std::string(name(c.op));
  if (exists(c.collective, !c.in_place)) text += c.in_place ? " in place" : " out of place";
  return text + (c.cold ? " cold" : " warm");
}

/// Memory efficiency; nothing for sizes at which copies are not measured.
inline std::optional<double> efficiency(Case const& c, Figures const& f, double bandwidth) {
  if (!f.timed() || bandwidth <= 0 || least_traffic(c) <= 0) return std::nullopt;
  return least_traffic(c) / (f.median * bandwidth);
}

inline void add_rows(Json& json, std::string const& prefix, Case const& c, std::vector<Entry> const& entries,
                     std::vector<Figures> const& figures) {
  Figures const& ours = figures[0];
  if (!ours.timed()) return;
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (figures[i].timed()) {
      std::string const pair = prefix + " " + title(c) + " vs " + entries[i].label;
      Figures const& rival = figures[i];
      json.row(pair, c.bytes(), ours.median * 1e6, rival.median * 1e6, rival.median / ours.median, "us");
      json.row(pair + ", p99", c.bytes(), ours.p99 * 1e6, rival.p99 * 1e6, rival.p99 / ours.p99, "us");
    }
  if (auto const share = efficiency(c, ours, copy_bandwidth(c, entries, figures)))
    json.row(prefix + " " + title(c) + " memory efficiency", c.bytes(), *share, 1, *share, "of copy bandwidth");
}

inline void print_columns() {
  fmt::print("#\n#{:>11} {:>11} {:>8} {:>5} {:>4} {:>5}  {:18} | {:^58} | {:^58}\n", "size", "count", "type", "redop",
             "root", "cache", "contender", "out of place", "in place");
  auto const form =
      fmt::format("{:>9} {:>9} {:>7} {:>7} {:>5} {:>7} {:>8}", "time", "p99", "algbw", "busbw", "eff", "x", "#wrong");
  auto const units =
      fmt::format("{:>9} {:>9} {:>7} {:>7} {:>5} {:>7} {:>8}", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", "");
  fmt::print("#{:71} | {} | {}\n#{:>11} {:>11} {:45}  | {} | {}\n", "", form, form, "(B)", "(elements)", "", units,
             units);
}

/// One contender's figures for one form.
inline std::string form_columns(Case const& c, Figures const* f, Figures const* ours, double bandwidth, bool checked,
                                bool copies) {
  auto const nothing = fmt::format("{:>9} {:>9} {:>7} {:>7} {:>5} {:>7} {:>8}", "-", "-", "-", "-", "-", "-", "-");
  if (f == nullptr || !f->exists) return nothing;
  std::string const wrong = checked && !copies ? std::to_string(f->wrong) : "-";
  if (!f->timed()) return fmt::format("{:>9} {:>9} {:>7} {:>7} {:>5} {:>7} {:>8}", "-", "-", "-", "-", "-", "-", wrong);
  double const algorithm = static_cast<double>(c.bytes()) / f->median * 1e-9;
  auto const share = efficiency(c, *f, bandwidth);
  return fmt::format(
      "{:>9.2f} {:>9.2f} {:>7.2f} {:>7.2f} {:>5} {:>7} {:>8}", f->median * 1e6, f->p99 * 1e6, algorithm,
      copies ? algorithm : algorithm * bus_factor(c), share && !copies ? fmt::format("{:.2f}", *share) : "-",
      ours != nullptr && ours->timed() && ours != f ? fmt::format("{:.2f}", f->median / ours->median) : "-", wrong);
}

}  // namespace tutti::bench
