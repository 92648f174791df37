// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How much memory this process and those beside it may use together.

#include <tutti/exec/processors.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tutti::exec {

namespace detail {

/// The number in the line "NAME:   123 kB" of /proc/meminfo and its like, in bytes; 0 when it is not there.
inline std::int64_t meminfo_bytes(char const* text, char const* name) noexcept {
  char const* const line = std::strstr(text, name);
  return line == nullptr ? 0 : 1024 * std::strtoll(line + std::strlen(name), nullptr, 10);
}

/// Bytes that control groups grant, swap included; 0 when there is no limit. `swap` is what the machine has of it.
inline std::int64_t cgroup_memory(std::int64_t swap, char const* root = "/sys/fs/cgroup",
                                  char const* own = "/proc/self/cgroup") noexcept {
  std::int64_t lowest = 0;
  auto const take = [&](std::int64_t bytes) {
    if (bytes > 0 && (lowest == 0 || bytes < lowest)) lowest = bytes;
  };
  char path[4096];
  for_each_group(root, own, [&](char const* folder) {
    std::snprintf(path, sizeof(path), "%s/memory.max", folder);
    std::int64_t const most = std::strtoll(SmallFile(path).text, nullptr, 10);  // "max" is 0
    if (most <= 0) return;
    std::snprintf(path, sizeof(path), "%s/memory.swap.max", folder);
    SmallFile const swap_file(path);
    std::int64_t const own_swap =
        std::strncmp(swap_file.text, "max", 3) == 0 ? swap : std::strtoll(swap_file.text, nullptr, 10);
    std::int64_t const granted = std::min(swap, own_swap);
    take(most > INT64_MAX - granted ? INT64_MAX : most + granted);
  });
  std::snprintf(path, sizeof(path), "%s/memory/memory.memsw.limit_in_bytes", root);
  SmallFile const with_swap(path);
  std::snprintf(path, sizeof(path), "%s/memory/memory.limit_in_bytes", root);
  std::int64_t const most = std::strtoll(SmallFile(path).text, nullptr, 10);
  if (most > 0) take(with_swap.text[0] != 0 ? std::strtoll(with_swap.text, nullptr, 10)
                                            : (most > INT64_MAX - swap ? INT64_MAX : most + swap));
  return lowest;
}

}  // namespace detail

/// Bytes of memory and swap on this machine, at most the control group's limit: what more than this asks for can only
/// be killed. 0 when the system does not say.
inline std::int64_t available_memory() noexcept {
  detail::SmallFile const info("/proc/meminfo");
  std::int64_t const swap = detail::meminfo_bytes(info.text, "SwapTotal:");
  std::int64_t const machine = detail::meminfo_bytes(info.text, "MemTotal:") + swap;
  std::int64_t const granted = detail::cgroup_memory(swap);
  return granted > 0 && (machine == 0 || granted < machine) ? granted : machine;
}

}  // namespace tutti::exec
