// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many processors this process may use.

#include <tutti/config.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <unistd.h>

namespace tutti::exec {

namespace detail {

/// First bytes of a small file of the kernel's; empty when it is not there.
struct SmallFile {
  char text[4096] = {};
  explicit SmallFile(char const* path) noexcept {
    int const file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t const got = ::read(file, text, sizeof(text) - 1);
    text[got < 0 ? 0 : got] = 0;
    ::close(file);
  }
};

/// quota / period, rounded up; 0 when either is no positive number, which is how both versions say "no limit".
inline int quota_of(char const* quota_text, char const* period_text) noexcept {
  long const quota = std::strtol(quota_text, nullptr, 10);
  long const period = std::strtol(period_text, nullptr, 10);
  if (quota <= 0 || period <= 0) return 0;
  long const processors = quota / period + (quota % period != 0);
  return static_cast<int>(std::min(processors, 1L << 20));
}
/// From the text of a version 2 `cpu.max`: "150000 100000" or "max 100000".
inline int quota_of_cpu_max(char const* text) noexcept {
  char const* const space = std::strchr(text, ' ');
  return space == nullptr ? 0 : quota_of(text, space);
}

/// Calls f(folder) for the control group of this process and each above it, up to the root; for the root alone where
/// groups of version 2 are not in use. Containers see their own group as the root.
template <class F>
void for_each_group(char const* root, char const* own, F&& f) {
  SmallFile const groups(own);
  char const* const line = std::strncmp(groups.text, "0::", 3) == 0 ? groups.text : std::strstr(groups.text, "\n0::");
  char group[2048] = {};
  if (line != nullptr) std::sscanf(std::strstr(line, "0::") + 3, "%2047[^\n]", group);
  char folder[3072];
  for (;;) {
    std::snprintf(folder, sizeof(folder), "%s%s", root, group);
    f(folder);
    char* const slash = std::strrchr(group, '/');
    if (slash == nullptr) break;
    *slash = 0;
  }
}

/// Processors' worth of time that control groups grant, rounded up; 0 when there is no limit. The limit of any group
/// between the process's own one and the root binds.
template <class = void>
int cgroup_quota(char const* root = "/sys/fs/cgroup", char const* own = "/proc/self/cgroup") noexcept {
  int lowest = 0;
  auto const take = [&](int quota) {
    if (quota > 0 && (lowest == 0 || quota < lowest)) lowest = quota;
  };
  char path[4096];
  for_each_group(root, own, [&](char const* folder) {
    std::snprintf(path, sizeof(path), "%s/cpu.max", folder);
    take(quota_of_cpu_max(SmallFile(path).text));
  });
  std::snprintf(path, sizeof(path), "%s/cpu/cpu.cfs_quota_us", root);
  SmallFile const quota_v1(path);
  std::snprintf(path, sizeof(path), "%s/cpu/cpu.cfs_period_us", root);
  take(quota_of(quota_v1.text, SmallFile(path).text));
  return lowest;
}

}  // namespace detail

/// Processors in the affinity mask of the calling thread, at most the control group's quota, at least 1.
template <class = void>
int available_processors() noexcept {
#if TUTTI_WASM
  return 1;
#else
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int count = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask)
                                                               : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (int const quota = detail::cgroup_quota(); quota > 0 && quota < count) count = quota;
  return count < 1 ? 1 : count;
#endif
}

/// As the system calls the first one.
template <class = void>
std::string processor_name() {
  detail::SmallFile const info("/proc/cpuinfo");
  char const* const line = std::strstr(info.text, "model name");
  char const* const name = line == nullptr ? nullptr : std::strstr(line, ": ");
  return name == nullptr ? std::string("unknown processor") : std::string(name + 2, std::strcspn(name + 2, "\n"));
}

}  // namespace tutti::exec
