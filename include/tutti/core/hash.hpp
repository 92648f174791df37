// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A fast 64-bit hash of bytes, to tell whether two ranks or two files hold the same. Not for adversaries.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti {

/// Equal bytes and seed give equal hashes on every little-endian machine; any single changed byte changes the result.
/// Four lanes multiply independently, so that memory and not the multiplier is the limit.
/// Source    finalizer of MurmurHash3 (Appleby 2011).
template <class = void>
std::uint64_t hash_bytes(std::span<std::byte const> bytes, std::uint64_t seed = 0) noexcept {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t lanes[4] = {seed ^ 0x243f6a8885a308d3u, seed ^ 0x13198a2e03707344u, seed ^ 0xa4093822299f31d0u,
                            seed ^ 0x082efa98ec4e6c89u};
  // The shift carries high bits down before the product, which only carries bits up.
  auto const mix = [](std::uint64_t lane, std::uint64_t word) {
    lane ^= word;
    return std::rotl((lane ^ (lane >> 32)) * odd, 29);
  };
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32)
    for (std::size_t lane = 0; lane < 4; ++lane) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at + 8 * lane, 8);
      lanes[lane] = mix(lanes[lane], word);
    }
  for (std::size_t lane = 0; at < bytes.size(); ++lane, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, bytes.size() - at < 8 ? bytes.size() - at : 8);
    lanes[lane] = mix(lanes[lane], word);
  }
  std::uint64_t h = bytes.size();
  for (std::uint64_t lane : lanes) h = mix(h, lane);
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
  return h ^ (h >> 33);
}

}  // namespace tutti
