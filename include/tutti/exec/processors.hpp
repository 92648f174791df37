// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many processors this process may use.

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace tutti::exec {

namespace detail {

/// First bytes of a small file of the kernel's; empty when it is not there.
struct SmallFile {
  char text[128] = {};
  explicit SmallFile(char const* path) noexcept {
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t const got = ::read(file, text, sizeof(text) - 1);
    if (got < 0) text[0] = 0;
    ::close(file);
  }
};

/// Processors' worth of time that the control group grants, rounded up; 0 when there is no limit.
/// Container runtimes mount the process's own group at the root, in the layout of version 2 or 1.
inline int cgroup_quota() noexcept {
  if (SmallFile const v2("/sys/fs/cgroup/cpu.max"); v2.text[0] >= '0' && v2.text[0] <= '9') {
    char* rest = nullptr;
    long const quota = std::strtol(v2.text, &rest, 10);
    long const period = std::strtol(rest, nullptr, 10);
    if (quota > 0 && period > 0) return static_cast<int>((quota + period - 1) / period);
  }
  SmallFile const quota_v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  SmallFile const period_v1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  long const quota = std::strtol(quota_v1.text, nullptr, 10);
  long const period = std::strtol(period_v1.text, nullptr, 10);
  if (quota > 0 && period > 0) return static_cast<int>((quota + period - 1) / period);
  return 0;
}

}  // namespace detail

/// Processors in the affinity mask of the calling thread, at most the control group's quota, at least 1.
inline int available_processors() noexcept {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int count = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask)
                                                               : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (int const quota = detail::cgroup_quota(); quota > 0 && quota < count) count = quota;
  return count < 1 ? 1 : count;
}

}  // namespace tutti::exec
