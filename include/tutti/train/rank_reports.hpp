// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How the ranks of a run are, about once a second: what the table of a dashboard shows.

#include <tutti/comm/port.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/registry.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace tutti::train {

/// This machine's; empty where it has none.
inline std::string host_name() {
  char name[256] = "";
  static_cast<void>(::gethostname(name, sizeof name - 1));
  return name;
}

/// What this process has used of its machine since the last call.
class ProcessUse {
 public:
  /// Processors that were busy with it, on average since the call before.
  double processors() noexcept {
    struct rusage use {};
    ::getrusage(RUSAGE_SELF, &use);
    auto const seconds = [](timeval const& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    double const now = static_cast<double>(exec::now_ns()) * 1e-9, used = seconds(use.ru_utime) + seconds(use.ru_stime);
    double const busy = then_ > 0 && now > then_ ? (used - used_) / (now - then_) : 0;
    then_ = now, used_ = used;
    return busy;
  }
  /// Bytes in memory; 0 where it is not known.
  static std::int64_t memory() noexcept {
    long long pages = 0;
    if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%*s %lld", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    return pages * ::sysconf(_SC_PAGESIZE);
  }

 private:
  double then_ = 0, used_ = 0;
};

/// A rank's part in it.
class RankReports {
 public:
  /// Whether a second has passed since the last one.
  bool due() const noexcept { return exec::now_ns() - last_ns_ >= 1'000'000'000; }
  /// Publishes `machine` (processors busy, bytes in memory of all ranks' processes, bytes available on this node) and
  /// `workers`, a list with an object for each rank. `device` is rank 0's word for what each of them uses.
  /// Ranks: all. Blocking.
  void exchange(comm::Port& port, double waited_ms, std::string const& device, Registry& registry) {
    last_ns_ = exec::now_ns();
    auto const ranks = static_cast<std::size_t>(port.size()), rank = static_cast<std::size_t>(port.rank());
    std::vector<double> said(ranks * row, 0.0);
    double* const own = said.data() + rank * row;
    own[0] = static_cast<double>(::getpid());
    own[1] = use_.processors();
    own[2] = static_cast<double>(ProcessUse::memory());
    own[3] = waited_ms;
    std::string const host = host_name().substr(0, name_bytes);
    std::copy(host.begin(), host.end(), own + 4);
    parallel::all_reduce(port, said, comm::PortOp::sum);
    if (rank != 0) return;
    Registry::Json list = Registry::Json::array();
    double busy = 0, memory = 0;
    std::vector<std::pair<std::string, double>> seen;  // ranks that are threads have one process together
    for (std::size_t i = 0; i < ranks; ++i) {
      double const* const one = said.data() + i * row;
      std::string name(one + 4, one + row);
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
    }
    registry.set("machine", {{"cpu", busy}, {"memory", memory}, {"available", exec::available_memory()}});
    registry.set("workers", std::move(list));
  }

 private:
  static constexpr std::size_t name_bytes = 32, row = 4 + name_bytes;
  std::int64_t last_ns_ = 0;
  ProcessUse use_;
};

}  // namespace tutti::train
