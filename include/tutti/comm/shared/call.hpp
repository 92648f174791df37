// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A collective of ranks that share memory, on its way: what the engine and a rank's share know of it.

#include <tutti/comm/collective.hpp>

#include <cstdint>
#include <exception>

namespace tutti::comm::shared {

/// What ranks of a node do together as a part of a collective of more ranks.
struct Part {
  Collective call{};  ///< with the node's own ranks
  /// Elements of a buffer with a block for each rank, the last ones of which overlap those before them where `count` of
  /// each would be more; -1: the blocks lie end to end. For reduce_scatter out of place, gather and all_gather.
  std::int64_t extent = -1;
  /// Bytes of an element of the result, where it is wider than the contributions are; 0: the same. For reduce_scatter.
  std::int64_t result_bytes = 0;
};

/// A collective under way.
struct Call {
  enum Phase : std::uint8_t { unpublished, arriving, disagreeing, sharing, filling, consuming, draining, closing };
  Call() = default;
  explicit Call(Collective const& made) : call(made), element(made.element_bytes()), length(made.count) {}

  Collective call;
  std::int64_t element = 1;  // bytes
  Collective const* part_of = nullptr;
  std::int64_t extent = -1;
  std::int64_t result_bytes = 0;
  std::uint64_t sequence = 0;
  std::uint64_t round = 0;     // of staged collectives: the engine's number of the round under way
  std::int64_t length = 0;     // elements of the longest block
  std::int64_t at = 0;         // first element of the round in each block
  std::int64_t chunk = 0;      // elements of a round in each block
  std::int64_t places = 1;     // of staging memory, in turn, where a round needs a part of it
  std::int64_t give_up_at = 0;
  int next = 0;                // the first rank not yet seen in this phase
  int one = 0, other = 0;      // who disagree
  std::int64_t given = 0;      // bytes of a block from `one` to `other`, where the two disagree on that, as is the next
  std::int64_t expected = 0;
  Phase phase = unpublished;
  bool complete = false;
  std::exception_ptr failure{};  // of this call, whoever moved it on
  bool compares_only = false;  // the rest goes by messages
  bool small = false;          // the board carries the contributions
  WireTraffic moved{};         // by this rank, see comm/tally.hpp
  bool fills = false;          // whether some contribution, or some result, passes through staging memory
  bool drains = false;
  bool reads = false;          // whether contributions that are out of reach are read in their process's memory
  bool filled = false;  // the first round was, before this rank was there

  /// What the user called.
  Collective const& whole() const noexcept { return part_of != nullptr ? *part_of : call; }
  std::uint64_t ticket() const noexcept { return sequence + 1; }
  std::int64_t element_bytes() const noexcept { return element; }
  Algorithm algorithm() const noexcept {
    if (small) return Algorithm::shared_board;
    return fills || drains ? Algorithm::shared_staged : Algorithm::shared_one_pass;
  }
  /// Where a rank's block begins in a buffer with one for each rank.
  std::int64_t begin_of(std::int64_t block) const noexcept {
    std::int64_t const begin = block * call.count;
    return extent < 0 || begin <= extent - call.count ? begin : extent - call.count;
  }
  /// Elements of the round under way in each block.
  std::int64_t round_count() const noexcept { return length - at < chunk ? length - at : chunk; }
};

}  // namespace tutti::comm::shared
