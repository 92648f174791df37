// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What this process uses of its machine.

#include <tutti/exec/wait.hpp>

#include <cstdint>
#include <cstdio>
#include <sys/resource.h>
#include <unistd.h>

namespace tutti::train {

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
  /// The same where a page that several processes have counts as one process's part of it: what those of a machine need
  /// together is the sum. As `memory` where the system does not say.
  static std::int64_t share_of_memory() noexcept {
    long long kilobytes = -1;
    if (std::FILE* const file = std::fopen("/proc/self/smaps_rollup", "r")) {
      char line[256];
      while (kilobytes < 0 && std::fgets(line, sizeof line, file) != nullptr)
        if (std::sscanf(line, "Pss: %lld kB", &kilobytes) != 1) kilobytes = -1;
      std::fclose(file);
    }
    return kilobytes < 0 ? memory() : kilobytes * 1024;
  }

 private:
  double then_ = 0, used_ = 0;
};

}  // namespace tutti::train
