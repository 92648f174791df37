// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How the ranks of a run are, about once a second: what the table of a dashboard shows.

#include <tutti/comm/port.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/process_use.hpp>
#include <tutti/train/registry.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tutti::train {

/// How long the slowest rank was busy with a step, without what it waited for others, and which one it was. As one
/// number, whose maximum over ranks is that of the slowest.
struct SlowestRank {
  double ms = 0;
  int rank = 0;

  /// Microseconds, then the rank: below 2^20 ranks and two hours a step this is exact.
  double packed() const noexcept { return std::floor(std::max(ms, 0.0) * 1e3) * most_ranks + rank; }
  static SlowestRank of(double packed) noexcept {
    double const microseconds = std::floor(packed / most_ranks);
    return {microseconds / 1e3, static_cast<int>(packed - microseconds * most_ranks)};
  }

 private:
  static constexpr double most_ranks = 1 << 20;
};

/// A rank's part in it.
class RankReports {
 public:
  /// Whether a second has passed since the last one.
  bool due() const noexcept { return exec::now_ns() - last_ns_ >= 1'000'000'000; }
  /// Publishes `machine` (processors busy, bytes in memory of all ranks' processes, bytes available on this node) and
  /// `workers`, a list with an object for each rank; records what step `step` took each rank, where there are several:
  /// `busy_ms` without what it waited for others, which is `waits_ms` of the step before. `device` is rank 0's word for
  /// what each of them uses. Ranks: all. Blocking.
  void exchange(comm::Port& port, std::int64_t step, double busy_ms, double waited_ms, std::string const& device,
                Registry& registry) {
    last_ns_ = exec::now_ns();
    auto const ranks = static_cast<std::size_t>(port.size()), rank = static_cast<std::size_t>(port.rank());
    std::vector<double> said(ranks * row, 0.0);
    double* const own = said.data() + rank * row;
    own[0] = static_cast<double>(::getpid());
    own[1] = use_.processors();
    own[2] = static_cast<double>(ProcessUse::memory());
    own[3] = waited_ms;
    own[4] = busy_ms;
    std::string const host = io::host_name().substr(0, name_bytes);
    std::copy(host.begin(), host.end(), own + numbers);
    parallel::all_reduce(port, said, comm::PortOp::sum);
    if (rank != 0) return;
    Registry::Json list = Registry::Json::array();
    Registry::Json times{{"type", "ranks"}, {"step", step}};
    double busy = 0, memory = 0;
    std::vector<std::pair<std::string, double>> seen;  // ranks that are threads have one process together
    for (std::size_t i = 0; i < ranks; ++i) {
      double const* const one = said.data() + i * row;
      std::string name(one + numbers, one + row);
      name.resize(std::min(name.find('\0'), name.size()));
      std::pair const process(name, one[0]);
      if (std::find(seen.begin(), seen.end(), process) == seen.end()) {
        seen.push_back(process);
        busy += one[1], memory += one[2];
      }
      list.push_back({{"name", "rank " + std::to_string(i)},
                      {"device", device},
                      {"link", name},
                      {"process", static_cast<std::int64_t>(one[0])},
                      {"cpu", one[1]},
                      {"memory", one[2]},
                      {"waits_ms", one[3]}});
      times["busy_ms"].push_back(one[4]);
      times["waits_ms"].push_back(one[3]);
    }
    if (ranks > 1 && busy_ms > 0) registry.record(std::move(times));  // not before the first step
    registry.set("machine", {{"cpu", busy}, {"memory", memory}, {"available", exec::available_memory()}});
    registry.set("workers", std::move(list));
  }

 private:
  static constexpr std::size_t name_bytes = 32, numbers = 5, row = numbers + name_bytes;
  std::int64_t last_ns_ = 0;
  ProcessUse use_;
};

}  // namespace tutti::train
