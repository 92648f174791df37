// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Memory of models and caches, checked before it is allocated: one budget of the process.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/processors.hpp>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::infer {

/// Bytes that something is about to take.
struct MemoryNeed {
  std::int64_t weights = 0, caches = 0, working = 0;
  std::int64_t copies = 0;  ///< of weights, in another order
  bool mapped =
      false;  ///< weights are pages of a file: they count against a bound that was set, not against free memory
  std::int64_t bytes() const noexcept { return weights + caches + working + copies; }
};

namespace detail {

inline constexpr std::int64_t unknown_bytes = std::numeric_limits<std::int64_t>::max();

/// Of a file of names and numbers.
inline std::int64_t fact(std::string const& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key, rest;
  for (std::int64_t value = 0; file >> key >> value; std::getline(file, rest))
    if (key == wanted) return value;
  return unknown_bytes;
}
inline std::int64_t number_in(std::string const& path) {
  std::int64_t value = 0;
  return std::ifstream(path) >> value ? value : unknown_bytes;  // "max" is none
}

/// What control groups allow all of their processes, and what is left of it.
struct GroupMemory {
  std::int64_t most = unknown_bytes, free = unknown_bytes;
};
/// Of the group that the process is in and those above it, the least: a service's, a user's, a container's.
inline GroupMemory memory_of_groups(char const* root = "/sys/fs/cgroup", char const* own = "/proc/self/cgroup") {
  GroupMemory memory;
  auto const take = [&memory](std::string const& limit, std::string const& current, std::string const& facts,
                              char const* files_of) {
    std::int64_t const most = number_in(limit), now = number_in(current), files = fact(facts, files_of);
    if (most == unknown_bytes) return;
    memory.most = std::min(memory.most, most);
    // Pages of files make room.
    if (now != unknown_bytes) memory.free = std::min(memory.free, most - now + (files == unknown_bytes ? 0 : files));
  };
  exec::detail::for_each_group(root, own, [&](char const* folder) {
    std::string const at(folder);
    take(at + "/memory.max", at + "/memory.current", at + "/memory.stat", "inactive_file");
  });
  std::string const first = std::string(root) + "/memory/memory.";  // of version 1
  take(first + "limit_in_bytes", first + "usage_in_bytes", first + "stat", "total_inactive_file");
  return memory;
}

}  // namespace detail

/// Bytes that models and caches of this process take, as far as they were taken from it. Thread-safe.
class MemoryBudget {
 public:
  /// A part of it, given back at the end.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      std::lock_guard const guard(mutex());
      used() -= bytes_;
    }

   private:
    friend class MemoryBudget;
    explicit Part(std::int64_t bytes) : bytes_(bytes) {}
    std::int64_t bytes_ = 0;
  };

  /// `most`: bytes that all parts together may have; 0: what the machine, or a control group that the process is in,
  /// has free. `advice`: what to lower, a sentence.
  /// Errors    out_of_memory, with what is required, what is available and the advice; nothing is taken then
  static Part take(MemoryNeed const& need, std::int64_t most, std::string_view advice) {
    std::lock_guard const guard(mutex());
    std::int64_t const least = counted(need, most), available = left(most);
    if (least > available)
      throw Error(
          ErrorKind::out_of_memory, "MemoryBudget",
          concat("the model needs ", mb(need.weights + need.copies), " MB for weights, ", mb(need.caches),
                 " MB for caches and ", mb(need.working), " MB to work, and ", mb(std::max<std::int64_t>(available, 0)),
                 " MB are ", most > 0 ? concat("left of the ", mb(most), " MB that are set") : "free", ". ", advice));
    used() += need.bytes();
    return Part(need.bytes());
  }
  /// What may still be taken; may be negative. `most` as above.
  static std::int64_t available(std::int64_t most) {
    std::lock_guard const guard(mutex());
    return left(most);
  }
  /// What of a need counts against what is available. `most` as above.
  static std::int64_t counted(MemoryNeed const& need, std::int64_t most) noexcept {
    return need.mapped && most == 0 ? need.caches + need.working + need.copies : need.bytes();
  }
  /// Bytes now taken.
  static std::int64_t in_use() {
    std::lock_guard const guard(mutex());
    return used();
  }

 private:
  static std::int64_t mb(std::int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }
  static std::int64_t left(std::int64_t most) {
    if (most > 0) return most - used();
    // Pages of caches that nobody touched yet are promised, though the machine counts them as free.
    detail::GroupMemory const group = detail::memory_of_groups();
    return std::min({machine("MemAvailable:"), machine("MemTotal:") - used(), group.free, group.most - used()});
  }
  static std::int64_t machine(std::string_view wanted) {
    std::int64_t const kib = detail::fact("/proc/meminfo", wanted);
    return kib == detail::unknown_bytes ? kib : kib << 10;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::int64_t& used() {
    static std::int64_t bytes = 0;
    return bytes;
  }
};

}  // namespace tutti::infer
