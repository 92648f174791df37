// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What this process uses of its machine.

#include <tutti/exec/memory_limit.hpp>
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
  /// Of `memory` the most since `forget_peak`, or since the process began; 0 where it is not known.
  static std::int64_t peak_memory() noexcept {
    return exec::detail::meminfo_bytes(exec::detail::SmallFile("/proc/self/status").text, "VmHWM:");
  }
  /// False where the system does not do it.
  static bool forget_peak() noexcept {
    std::FILE* const file = std::fopen("/proc/self/clear_refs", "w");
    if (file == nullptr) return false;
    bool const written = std::fputs("5", file) >= 0;
    return std::fclose(file) == 0 && written;
  }
  /// As `memory`, but a page that several processes have counts as one process's part of it: what those of a machine
  /// need together is the sum. As `memory` where the system does not say.
  static std::int64_t share_of_memory() noexcept {
    exec::detail::SmallFile const pages("/proc/self/smaps_rollup");
    std::int64_t const share = exec::detail::meminfo_bytes(pages.text, "Pss:");
    return share > 0 ? share : memory();
  }

 private:
  double then_ = 0, used_ = 0;
};

}  // namespace tutti::train
