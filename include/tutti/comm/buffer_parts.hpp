// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which bytes of a call's buffers are which rank's.

#include <tutti/comm/collective.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::comm {

/// Bytes of a buffer.
struct BufferPart {
  std::int64_t at, bytes;
};

/// Block r of a buffer that holds one for each rank.
inline BufferPart block_part(Collective const& call, PerRank counts, int r) noexcept {
  if (counts.empty()) return {r * call.block_bytes(), call.block_bytes()};
  std::int64_t before = 0;
  for (int other = 0; other < r; ++other) before += counts[other];
  return {before * call.element_bytes(), counts[r] * call.element_bytes()};
}
/// The elements that rank r reduces: its own block, or an equal share where everybody wants all of them.
inline BufferPart reduced_part(Collective const& call, int ranks, int r) noexcept {
  if (call.kind == Kind::reduce_scatter || call.kind == Kind::reduce_scatter_v)
    return block_part(call, call.from_counts, r);
  auto const bound = [&](std::int64_t i) { return call.count / ranks * i + call.count % ranks * i / ranks; };
  return {bound(r) * call.element_bytes(), (bound(r + 1) - bound(r)) * call.element_bytes()};
}
/// A part of every contribution of one rank.
inline BufferPart rows_of(Collective const& call, BufferPart part) noexcept {
  return {part.at * call.contributions, part.bytes * call.contributions};
}

/// The memory so many bytes behind p.
inline std::byte* bytes_at(void* p, std::int64_t bytes) noexcept { return static_cast<std::byte*>(p) + bytes; }
inline std::byte const* bytes_at(void const* p, std::int64_t bytes) noexcept {
  return static_cast<std::byte const*>(p) + bytes;
}

}  // namespace tutti::comm
