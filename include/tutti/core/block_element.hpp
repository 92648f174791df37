// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One number of a block, for whoever reads blocks in an order of its own, as the threads of a GPU do: the same bits as
/// `blocks::dequantise` gives.

#include <tutti/core/block_layout.hpp>

#include <cstdint>

namespace tutti::blocks {

/// Number e of the block, counted from 0.
constexpr float element(F32 const& block, int) noexcept { return block.value; }
constexpr float element(F16 const& block, int) noexcept { return block.value; }
constexpr float element(BF16 const& block, int) noexcept { return block.value; }

/// The code of four bits that blocks of 32 have for number e.
constexpr int four_bits(std::uint8_t const* q, int e) noexcept { return (q[e % 16] >> (4 * (e / 16))) & 15; }
constexpr int fifth_bit(std::uint8_t const* high, int e) noexcept { return ((high[e / 8] >> (e % 8)) & 1) << 4; }

constexpr float element(Q4_0 const& block, int e) noexcept {
  return float(block.d) * static_cast<float>(four_bits(block.q, e) - 8);
}
constexpr float element(Q4_1 const& block, int e) noexcept {
  return float(block.d) * static_cast<float>(four_bits(block.q, e)) + float(block.m);
}
constexpr float element(Q5_0 const& block, int e) noexcept {
  return float(block.d) * static_cast<float>((four_bits(block.q, e) | fifth_bit(block.high, e)) - 16);
}
constexpr float element(Q5_1 const& block, int e) noexcept {
  return float(block.d) * static_cast<float>(four_bits(block.q, e) | fifth_bit(block.high, e)) + float(block.m);
}
constexpr float element(Q8_0 const& block, int e) noexcept { return float(block.d) * static_cast<float>(block.q[e]); }
constexpr float element(Q2_K const& block, int e) noexcept {
  int const pair = block.scales[e / 16], code = (block.q[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
  return float(block.d) * static_cast<float>(pair & 15) * static_cast<float>(code) -
         float(block.dmin) * static_cast<float>(pair >> 4);
}
constexpr float element(Q3_K const& block, int e) noexcept {
  int const code = (block.q[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
  int const below = ((block.high[e % 32] >> (e / 32)) & 1) != 0 ? 0 : 4;
  return float(block.d) * static_cast<float>(three_bit_scale(block.scales, e / 16)) * static_cast<float>(code - below);
}
constexpr float element(Q4_K const& block, int e) noexcept {
  auto const [s, m] = six_bit_pair(block.scales, e / 32);
  int const code = (block.q[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
  return float(block.d) * static_cast<float>(s) * static_cast<float>(code) - float(block.dmin) * static_cast<float>(m);
}
constexpr float element(Q5_K const& block, int e) noexcept {
  auto const [s, m] = six_bit_pair(block.scales, e / 32);
  int const low = (block.q[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2))) & 15;
  int const code = low | ((block.high[e % 32] >> (e / 32)) & 1) << 4;
  return float(block.d) * static_cast<float>(s) * static_cast<float>(code) - float(block.dmin) * static_cast<float>(m);
}
constexpr float element(Q6_K const& block, int e) noexcept {
  int const half = e / 128, g = e % 128 / 32, l = e % 32;
  int const low = (block.q[64 * half + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15;
  int const high = (block.high[32 * half + l] >> (2 * g)) & 3;
  return float(block.d) * static_cast<float>(block.scales[e / 16]) * static_cast<float>((low | high << 4) - 32);
}
constexpr float element(IQ4_NL const& block, int e) noexcept {
  return float(block.d) * static_cast<float>(iq4_value(four_bits(block.q, e)));
}
constexpr float element(IQ4_XS const& block, int e) noexcept {
  int const code = four_bits(block.q + 16 * (e / 32), e % 32);
  return float(block.d) * static_cast<float>(iq4_scale(block, e / 32)) * static_cast<float>(iq4_value(code));
}

}  // namespace tutti::blocks
