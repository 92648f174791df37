// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which parts of a range of memory are in use: the bookkeeping of one rank's portion of shared memory, kept outside
/// it.

#include <tutti/core/list.hpp>

#include <cstdint>

namespace tutti::comm::shared {

/// Allocates offsets in [0, size): the lowest hole that fits. Alignment and granularity are 64 bytes. Not thread-safe.
class Space {
 public:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  explicit Space(std::uint64_t size = 0) {
    if (size >= granularity) holes_.push_back({0, size / granularity * granularity});
  }

  /// `none` when no hole is large enough. Zero bytes take one granule, so that addresses differ.
  std::uint64_t allocate(std::uint64_t bytes) {
    if (bytes > none - granularity) return none;
    std::uint64_t const size = rounded(bytes);
    for (std::size_t i = 0; i < holes_.size(); ++i) {
      Hole& hole = holes_[i];
      if (hole.size < size) continue;
      std::uint64_t const at = hole.at;
      hole.at += size;
      hole.size -= size;
      if (hole.size == 0) holes_.erase(i);
      if (at + size > high_) high_ = at + size;
      return at;
    }
    return none;
  }
  /// Gives back what `allocate(bytes)` returned; neighbouring holes become one.
  void release(std::uint64_t at, std::uint64_t bytes) {
    std::uint64_t const size = rounded(bytes);
    std::size_t i = 0;
    while (i < holes_.size() && holes_[i].at < at) ++i;
    bool const joins_left = i > 0 && holes_[i - 1].at + holes_[i - 1].size == at;
    bool const joins_right = i < holes_.size() && at + size == holes_[i].at;
    if (joins_left) {
      holes_[i - 1].size += size;
      if (joins_right) {
        holes_[i - 1].size += holes_[i].size;
        holes_.erase(i);
      }
    } else if (joins_right) {
      holes_[i].at = at;
      holes_[i].size += size;
    } else {
      holes_.push_back({at, size});
      for (std::size_t j = holes_.size() - 1; j > i; --j) {
        Hole const moved = holes_[j];
        holes_[j] = holes_[j - 1];
        holes_[j - 1] = moved;
      }
    }
  }
  /// Everything ever allocated lies below it.
  std::uint64_t high() const noexcept { return high_; }
  std::size_t holes() const noexcept { return holes_.size(); }

 private:
  static constexpr std::uint64_t granularity = 64;
  static std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return bytes == 0 ? granularity : (bytes + granularity - 1) / granularity * granularity;
  }
  struct Hole {
    std::uint64_t at = 0, size = 0;
  };
  List<Hole> holes_;  // in order of `at`, never adjacent
  std::uint64_t high_ = 0;
};

}  // namespace tutti::comm::shared
