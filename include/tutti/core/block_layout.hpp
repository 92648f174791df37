// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The bytes of the blocks of every BlockType, for files and for kernels. Numbers are float16 scales, unsigned codes
/// and small integers, with no padding; a block needs the alignment of a float16 at most (F32: of a float).
///
/// Let e be the place of a number in its block; H = e / 128, g = e % 128 / 32 and l = e % 32 in blocks of 256.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/block_type.hpp>
#include <tutti/core/float16.hpp>

#include <cstdint>

namespace tutti::blocks {

struct F32 {
  static constexpr BlockType type = BlockType::f32;
  float value;
};
struct F16 {
  static constexpr BlockType type = BlockType::f16;
  float16 value;
};
struct BF16 {
  static constexpr BlockType type = BlockType::bf16;
  bfloat16 value;
};

/// d (n - 8), n the low (e < 16) or high nibble of q[e % 16].
struct Q4_0 {
  static constexpr BlockType type = BlockType::q4_0;
  float16 d;
  std::uint8_t q[16];
};
/// d n + m, n as in Q4_0.
struct Q4_1 {
  static constexpr BlockType type = BlockType::q4_1;
  float16 d, m;
  std::uint8_t q[16];
};
/// d (n - 16), n as in Q4_0 plus 16 times bit e of `high`.
struct Q5_0 {
  static constexpr BlockType type = BlockType::q5_0;
  float16 d;
  std::uint8_t high[4];
  std::uint8_t q[16];
};
/// d n + m, n as in Q5_0.
struct Q5_1 {
  static constexpr BlockType type = BlockType::q5_1;
  float16 d, m;
  std::uint8_t high[4];
  std::uint8_t q[16];
};
/// d q[e].
struct Q8_0 {
  static constexpr BlockType type = BlockType::q8_0;
  float16 d;
  std::int8_t q[32];
};
/// d s n - dmin m: s and m the low and high nibble of scales[e / 16], n the two bits at 2 g of q[32 H + l].
struct Q2_K {
  static constexpr BlockType type = BlockType::q2_k;
  std::uint8_t scales[16];
  std::uint8_t q[64];
  float16 d, dmin;
};
/// d s n: s = three_bit_scale(scales, e / 16); n the two bits at 2 g of q[32 H + l], less 4 where bit 4 H + g of
/// high[l] is not set.
struct Q3_K {
  static constexpr BlockType type = BlockType::q3_k;
  std::uint8_t high[32];
  std::uint8_t q[64];
  std::uint8_t scales[12];
  float16 d;
};
/// d s n - dmin m: s and m of six_bit_pair(scales, e / 32), n the low (e / 32 even) or high nibble of
/// q[32 (e / 64) + l].
struct Q4_K {
  static constexpr BlockType type = BlockType::q4_k;
  float16 d, dmin;
  std::uint8_t scales[12];
  std::uint8_t q[128];
};
/// As Q4_K, n plus 16 times bit e / 32 of high[l].
struct Q5_K {
  static constexpr BlockType type = BlockType::q5_k;
  float16 d, dmin;
  std::uint8_t scales[12];
  std::uint8_t high[32];
  std::uint8_t q[128];
};
/// d scales[e / 16] (n - 32): the low four bits of n are the low (g < 2) or high nibble of q[64 H + 32 (g % 2) + l],
/// the other two are those at 2 g of high[32 H + l].
struct Q6_K {
  static constexpr BlockType type = BlockType::q6_k;
  std::uint8_t q[128];
  std::uint8_t high[64];
  std::int8_t scales[16];
  float16 d;
};
/// d iq4_values[n], n as in Q4_0.
struct IQ4_NL {
  static constexpr BlockType type = BlockType::iq4_nl;
  float16 d;
  std::uint8_t q[16];
};
/// d (s - 32) iq4_values[n]: with k = e / 32, the low four bits of s are nibble k % 2 of scales_low[k / 2], the others
/// the two bits at 2 k of scales_high; n is the low (l < 16) or high nibble of q[16 k + l % 16].
struct IQ4_XS {
  static constexpr BlockType type = BlockType::iq4_xs;
  float16 d;
  std::uint16_t scales_high;
  std::uint8_t scales_low[4];
  std::uint8_t q[128];
};

/// The sixteen numbers that a code of IQ4_NL and IQ4_XS stands for, before the scale.
inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/// The same, `code` from 0 to 15, for devices, which have no table of the host: its numbers as bytes of two words.
constexpr int iq4_value(int code) noexcept {
  constexpr auto packed = [](int first) {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(iq4_values[first + i])} << (8 * i);
    return word;
  };
  constexpr std::uint64_t low = packed(0), high = packed(8);
  return static_cast<std::int8_t>((code < 8 ? low : high) >> (8 * (code & 7)));
}

struct ScaleAndMin {
  int scale, min;
};
/// Pair k of eight that Q4_K and Q5_K keep in twelve bytes, six bits each.
constexpr ScaleAndMin six_bit_pair(std::uint8_t const* scales, int k) noexcept {
  if (k < 4) return {scales[k] & 63, scales[k + 4] & 63};
  return {(scales[k + 4] & 15) | (scales[k - 4] >> 6 << 4), (scales[k + 4] >> 4) | (scales[k] >> 6 << 4)};
}
/// Scale k of the sixteen that Q3_K keeps in twelve bytes, in [-32, 31].
constexpr int three_bit_scale(std::uint8_t const* scales, int k) noexcept {
  int const low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
  return (low | ((scales[8 + k % 4] >> (2 * (k / 4))) & 3) << 4) - 32;
}
/// Scale k of the eight of an IQ4_XS, in [-32, 31].
constexpr int iq4_scale(IQ4_XS const& block, int k) noexcept {
  return (((block.scales_low[k / 2] >> (4 * (k % 2))) & 15) | ((block.scales_high >> (2 * k)) & 3) << 4) - 32;
}

/// Calls `f` with a block, all zero, of the layout of `type`.
template <class F>
constexpr decltype(auto) with_block(BlockType type, F&& f) {
  switch (type) {
    case BlockType::f16: return f(F16{});
    case BlockType::bf16: return f(BF16{});
    case BlockType::q4_0: return f(Q4_0{});
    case BlockType::q4_1: return f(Q4_1{});
    case BlockType::q5_0: return f(Q5_0{});
    case BlockType::q5_1: return f(Q5_1{});
    case BlockType::q8_0: return f(Q8_0{});
    case BlockType::q2_k: return f(Q2_K{});
    case BlockType::q3_k: return f(Q3_K{});
    case BlockType::q4_k: return f(Q4_K{});
    case BlockType::q5_k: return f(Q5_K{});
    case BlockType::q6_k: return f(Q6_K{});
    case BlockType::iq4_nl: return f(IQ4_NL{});
    case BlockType::iq4_xs: return f(IQ4_XS{});
    case BlockType::f32: break;
  }
  return f(F32{});
}

}  // namespace tutti::blocks
