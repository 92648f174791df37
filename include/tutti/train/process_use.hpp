// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What this process uses of its machine.

#include <tutti/exec/wait.hpp>

#include <sys/resource.h>
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

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
  static std::int64_t peak_memory() noexcept { return kilobytes("/proc/self/status", "VmHWM:") * 1024; }
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
    std::int64_t const share = kilobytes("/proc/self/smaps_rollup", "Pss:");
    return share > 0 ? share * 1024 : memory();
  }

 private:
  /// What stands behind `name` in the first line that begins with it; 0 where none does.
  static std::int64_t kilobytes(char const* path, std::string_view name) noexcept {
    std::int64_t found = 0;
    if (std::FILE* const file = std::fopen(path, "r")) {
      char line[256];
      while (found == 0 && std::fgets(line, sizeof line, file) != nullptr)
        if (std::string_view(line).starts_with(name)) found = std::strtoll(line + name.size(), nullptr, 10);
      std::fclose(file);
    }
    return found;
  }
  double then_ = 0, used_ = 0;
};

}  // namespace tutti::train
