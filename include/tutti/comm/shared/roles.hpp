// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What each rank that shares memory has to do with a collective, by its kind: whether it contributes and gets a
/// result, how many sizes of blocks its entry tells, and which elements it reduces.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/shared/call.hpp>
#include <tutti/config.hpp>

#include <cstdint>

namespace tutti::comm::shared {

/// Whether the root alone contributes.
constexpr bool rooted_source(Kind kind) noexcept {
  return kind == Kind::broadcast || kind == Kind::scatter || kind == Kind::scatter_v;
}
constexpr bool is_scan(Kind kind) noexcept { return kind == Kind::scan || kind == Kind::exscan; }
/// Whether every rank gets a result of all elements, so that the ranks deal the elements out among them.
constexpr bool reduces_slices(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || is_scan(kind) || kind == Kind::all_reduce_contributions;
}
constexpr bool moves(Kind kind) noexcept {
  switch (kind) {
    case Kind::broadcast: case Kind::scatter: case Kind::gather: case Kind::all_gather: case Kind::all_to_all:
    case Kind::scatter_v: case Kind::gather_v: case Kind::all_gather_v: case Kind::all_to_all_v: return true;
    default: return false;
  }
}
/// Whether a contribution has a block for each rank.
constexpr bool has_blocks(Kind kind) noexcept {
  return gives_blocks(kind) || kind == Kind::scatter_v || kind == Kind::all_to_all_v || kind == Kind::reduce_scatter_v;
}
constexpr bool contributes(Collective const& call, int rank) noexcept {
  return !rooted_source(call.kind) || rank == call.root;
}
TUTTI_ALWAYS_INLINE constexpr bool gets_result(Collective const& call, int rank) noexcept {
  switch (call.kind) {
    case Kind::reduce: case Kind::gather: case Kind::gather_v: return rank == call.root;
    case Kind::exscan: return rank != 0;
    default: return true;
  }
}
/// Sizes that a rank's entry tells: of the blocks that it gives, then of those that it expects.
constexpr std::int64_t given_sizes(Collective const& call, int rank, int ranks) noexcept {
  switch (call.kind) {
    case Kind::gather_v: return 1;
    case Kind::scatter_v: return rank == call.root ? ranks : 0;
    case Kind::all_to_all_v: return ranks;
    default: return 0;
  }
}
constexpr std::int64_t expected_sizes(Collective const& call, int rank, int ranks) noexcept {
  switch (call.kind) {
    case Kind::gather_v: return rank == call.root ? ranks : 0;
    case Kind::scatter_v: return 1;
    case Kind::all_to_all_v: return ranks;
    default: return 0;
  }
}

/// Elements of a reduction.
struct Slice {
  std::int64_t begin = 0, end = 0;
};
/// The elements of [at, at + count) that a rank reduces: whole cache lines, where elements divide one. Inline, for the
/// shortest calls.
TUTTI_ALWAYS_INLINE Slice slice_of(Call const& c, int rank, int ranks, std::int64_t at, std::int64_t count) noexcept {
  std::int64_t const line = c.element_bytes() < 64 ? 64 / c.element_bytes() : 1;
  std::int64_t const lines = (count + line - 1) / line;
  auto const bound = [&](int r) {
    std::int64_t const elements = lines * r / ranks * line;
    return at + (elements < count ? elements : count);
  };
  return {bound(rank), bound(rank + 1)};
}

}  // namespace tutti::comm::shared
