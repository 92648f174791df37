// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What number e of a block is, by the published formula of its type, read off the bytes by offset; and random blocks.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/block_type.hpp>
#include <tutti/core/float16.hpp>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti::test {

/// Offsets of the float16 in a block, -1 for none.
inline std::pair<int, int> scale_offsets(BlockType type) {
  switch (type) {
    case BlockType::q4_1: case BlockType::q5_1: case BlockType::q4_k: case BlockType::q5_k: return {0, 2};
    case BlockType::q2_k: return {80, 82};
    case BlockType::q3_k: return {108, -1};
    case BlockType::q6_k: return {208, -1};
    case BlockType::f32: case BlockType::bf16: return {-1, -1};
    default: return {0, -1};
  }
}

/// Random blocks whose scales are finite, of either sign, subnormal ones among them.
inline std::vector<unsigned char> block_bytes(detail::BlockFacts const& facts, int count, std::uint64_t seed) {
  std::vector<unsigned char> bytes(std::size_t(count * facts.bytes));
  for (auto& byte : bytes) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>(seed >> 56);
  }
  auto const [first, second] = scale_offsets(facts.type);
  for (int i = 0; i < count; ++i)
    for (int const offset : {first, second})
      if (offset >= 0) bytes[std::size_t(i * facts.bytes + offset + 1)] &= 0xbb;  // two exponent bits cleared
  if (facts.type == BlockType::f32 || facts.type == BlockType::bf16)
    for (std::size_t i = std::size_t(facts.bytes) - 1; i < bytes.size(); i += std::size_t(facts.bytes))
      bytes[i] &= 0xbf;
  return bytes;
}

inline float block_value(BlockType type, unsigned char const* b, int e) {
  auto const h = [&](int offset) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, b + offset, 2);
    return static_cast<float>(float16::from_bits(bits));
  };
  auto const i8 = [&](int offset) { return static_cast<int>(static_cast<signed char>(b[offset])); };
  auto const nibble = [&](int q) { return (b[q + e % 16] >> (4 * (e / 16))) & 15; };
  auto const fifth = [&](int high) { return 16 * ((b[high + e / 8] >> (e % 8)) & 1); };
  auto const pair = [&](int sc, int k) -> std::pair<int, int> {
    if (k < 4) return {b[sc + k] & 63, b[sc + k + 4] & 63};
    return {(b[sc + k + 4] & 15) + 16 * (b[sc + k - 4] >> 6), (b[sc + k + 4] >> 4) + 16 * (b[sc + k] >> 6)};
  };
  static int const table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  int const H = e / 128, g = e % 128 / 32, l = e % 32;
  switch (type) {
    case BlockType::f32: {
      float value = 0;
      std::memcpy(&value, b, 4);
      return value;
    }
    case BlockType::f16: return h(0);
    case BlockType::bf16: {
      std::uint32_t const bits = std::uint32_t(b[0] | b[1] << 8) << 16;
      float value = 0;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    case BlockType::q4_0: return h(0) * float(nibble(2) - 8);
    case BlockType::q4_1: return h(0) * float(nibble(4)) + h(2);
    case BlockType::q5_0: return h(0) * float(nibble(6) + fifth(2) - 16);
    case BlockType::q5_1: return h(0) * float(nibble(8) + fifth(4)) + h(2);
    case BlockType::q8_0: return h(0) * float(i8(2 + e));
    case BlockType::q2_k: {
      int const s = b[e / 16], c = (b[16 + 32 * H + l] >> (2 * g)) & 3;
      return h(80) * float(s & 15) * float(c) - h(82) * float(s >> 4);
    }
    case BlockType::q3_k: {
      int const k = e / 16, low = k < 8 ? b[96 + k] & 15 : b[96 + k - 8] >> 4;
      int const s = low + 16 * ((b[96 + 8 + k % 4] >> (2 * (k / 4))) & 3);
      int const c = (b[32 + 32 * H + l] >> (2 * g)) & 3, high = (b[l] >> (4 * H + g)) & 1;
      return h(108) * float(s - 32) * float(c + 4 * high - 4);
    }
    case BlockType::q4_k: {
      auto const [s, m] = pair(4, e / 32);
      int const n = (b[16 + 32 * (e / 64) + l] >> (4 * (e / 32 % 2))) & 15;
      return h(0) * float(s) * float(n) - h(2) * float(m);
    }
    case BlockType::q5_k: {
      auto const [s, m] = pair(4, e / 32);
      int const n = ((b[48 + 32 * (e / 64) + l] >> (4 * (e / 32 % 2))) & 15) + 16 * ((b[16 + l] >> (e / 32)) & 1);
      return h(0) * float(s) * float(n) - h(2) * float(m);
    }
    case BlockType::q6_k: {
      int const low = (b[64 * H + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15, high = (b[128 + 32 * H + l] >> (2 * g)) & 3;
      return h(208) * float(i8(192 + e / 16)) * float(low + 16 * high - 32);
    }
    case BlockType::iq4_nl: return h(0) * float(table[nibble(2)]);
    case BlockType::iq4_xs: {
      int const k = e / 32, s = ((b[4 + k / 2] >> (4 * (k % 2))) & 15) + 16 * (((b[2] | b[3] << 8) >> (2 * k)) & 3);
      int const n = (b[8 + 16 * k + e % 16] >> (4 * (e % 32 / 16))) & 15;
      return h(0) * float(s - 32) * float(table[n]);
    }
  }
  return 0;
}

}  // namespace tutti::test
