// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How long a service keeps what idle caches hold, and for which prompts it serves.

#include <tutti/core/setting.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace tutti {
namespace infer {

/// Which idle cache goes first.
enum class CacheOrder : unsigned char {
  lru,    ///< the one that was used longest ago
  fifo,   ///< the one whose session came longest ago
  smart,  ///< the shortest: it costs least to make again
};

}  // namespace infer

template <>
inline constexpr auto setting::spelling<infer::CacheOrder> = std::array<std::string_view, 3>{"lru", "fifo", "smart"};

namespace infer {

struct CacheOptions {
  CacheOrder order = CacheOrder::lru;      ///< whose place a new session takes
  std::int64_t tokens = 0;                 ///< that idle caches hold together; 0: as many as there is room for
  CacheOrder deletion = CacheOrder::lru;   ///< who loses tokens when there are more
  bool partial = true;                     ///< it loses only as many as must go, from its end; else all
  std::chrono::milliseconds retention{0};  ///< idle caches are forgotten after this time; 0: never
  /// An idle cache is taken for a prompt that has at least this share of what it holds, or nothing beyond it, and loses
  /// the rest; where no place is empty, half is enough. Of others the beginning is copied. 0: any that has something.
  double similarity = 0.9;
  std::int64_t copy = 4;  ///< tokens that a copy must win
  /// Runs of at least so many tokens that stand later in the cache than in the prompt are moved (move_cached): a
  /// conversation whose old messages were dropped is not read again. Answers then differ a little from those to a
  /// prompt that is read. 0: none; without effect where positions are learned.
  std::int64_t chunk = 0;
};

}  // namespace infer
}  // namespace tutti
