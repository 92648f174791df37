// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Blocks of any BlockType as floats: the scalar text that says what the bytes mean. Kernels are tested against it.
///
/// Determinism: a product of scale, small integer and code has at most 23 significant bits, so it is exact, and where
/// something is added that is the one rounding. Fused or not, in any order of the factors, every processor gives the
/// same numbers; of NaN only that it is one.

#include <tutti/core/block_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

namespace tutti {

namespace blocks {

constexpr void dequantise(F32 const& block, float* y) noexcept { *y = block.value; }
constexpr void dequantise(F16 const& block, float* y) noexcept { *y = block.value; }
constexpr void dequantise(BF16 const& block, float* y) noexcept { *y = block.value; }

constexpr void dequantise(Q4_0 const& block, float* y) noexcept {
  float const d = block.d;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((block.q[i] & 15) - 8);
    y[i + 16] = d * static_cast<float>((block.q[i] >> 4) - 8);
  }
}
constexpr void dequantise(Q4_1 const& block, float* y) noexcept {
  float const d = block.d, m = block.m;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(block.q[i] & 15) + m;
    y[i + 16] = d * static_cast<float>(block.q[i] >> 4) + m;
  }
}
/// The 32 codes of five bits.
template <class Block>
constexpr void five_bits(Block const& block, int* codes) noexcept {
  for (int i = 0; i < 16; ++i) {
    codes[i] = (block.q[i] & 15) | ((block.high[i / 8] >> (i % 8)) & 1) << 4;
    codes[i + 16] = (block.q[i] >> 4) | ((block.high[2 + i / 8] >> (i % 8)) & 1) << 4;
  }
}
constexpr void dequantise(Q5_0 const& block, float* y) noexcept {
  int codes[32] = {};
  five_bits(block, codes);
  float const d = block.d;
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(codes[i] - 16);
}
constexpr void dequantise(Q5_1 const& block, float* y) noexcept {
  int codes[32] = {};
  five_bits(block, codes);
  float const d = block.d, m = block.m;
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(codes[i]) + m;
}
constexpr void dequantise(Q8_0 const& block, float* y) noexcept {
  float const d = block.d;
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(block.q[i]);
}
constexpr void dequantise(Q2_K const& block, float* y) noexcept {
  float const d = block.d, dmin = block.dmin;
  for (int part = 0; part < 8; ++part) {  // of 32, in two halves with a scale each
    std::uint8_t const* const q = block.q + 32 * (part / 4);
    for (int half = 0; half < 2; ++half) {
      int const pair = block.scales[2 * part + half];
      float const scale = d * static_cast<float>(pair & 15), min = dmin * static_cast<float>(pair >> 4);
      for (int l = 16 * half; l < 16 * half + 16; ++l)
        *y++ = scale * static_cast<float>((q[l] >> (2 * (part % 4))) & 3) - min;
    }
  }
}
constexpr void dequantise(Q3_K const& block, float* y) noexcept {
  float const d = block.d;
  for (int part = 0; part < 8; ++part) {
    std::uint8_t const* const q = block.q + 32 * (part / 4);
    for (int l = 0; l < 32; ++l) {
      float const scale = d * static_cast<float>(three_bit_scale(block.scales, 2 * part + l / 16));
      int const below = ((block.high[l] >> part) & 1) != 0 ? 0 : 4;
      *y++ = scale * static_cast<float>(((q[l] >> (2 * (part % 4))) & 3) - below);
    }
  }
}
constexpr void dequantise(Q4_K const& block, float* y) noexcept {
  for (int k = 0; k < 8; ++k) {
    auto const [s, m] = six_bit_pair(block.scales, k);
    float const scale = float(block.d) * static_cast<float>(s), min = float(block.dmin) * static_cast<float>(m);
    std::uint8_t const* const q = block.q + 32 * (k / 2);
    for (int l = 0; l < 32; ++l) *y++ = scale * static_cast<float>((q[l] >> (4 * (k % 2))) & 15) - min;
  }
}
constexpr void dequantise(Q5_K const& block, float* y) noexcept {
  for (int k = 0; k < 8; ++k) {
    auto const [s, m] = six_bit_pair(block.scales, k);
    float const scale = float(block.d) * static_cast<float>(s), min = float(block.dmin) * static_cast<float>(m);
    std::uint8_t const* const q = block.q + 32 * (k / 2);
    for (int l = 0; l < 32; ++l)
      *y++ = scale * static_cast<float>(((q[l] >> (4 * (k % 2))) & 15) | ((block.high[l] >> k) & 1) << 4) - min;
  }
}
constexpr void dequantise(Q6_K const& block, float* y) noexcept {
  float const d = block.d;
  for (int part = 0; part < 8; ++part) {
    int const half = part / 4, g = part % 4;
    for (int l = 0; l < 32; ++l) {
      int const low = (block.q[64 * half + 32 * (g % 2) + l] >> (4 * (g / 2))) & 15;
      int const high = (block.high[32 * half + l] >> (2 * g)) & 3;
      *y++ = d * static_cast<float>(block.scales[2 * part + l / 16]) * static_cast<float>((low | high << 4) - 32);
    }
  }
}
constexpr void dequantise(IQ4_NL const& block, float* y) noexcept {
  float const d = block.d;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(iq4_values[block.q[i] & 15]);
    y[i + 16] = d * static_cast<float>(iq4_values[block.q[i] >> 4]);
  }
}
constexpr void dequantise(IQ4_XS const& block, float* y) noexcept {
  for (int k = 0; k < 8; ++k, y += 32) {
    float const scale = float(block.d) * static_cast<float>(iq4_scale(block, k));
    for (int i = 0; i < 16; ++i) {
      y[i] = scale * static_cast<float>(iq4_values[block.q[16 * k + i] & 15]);
      y[i + 16] = scale * static_cast<float>(iq4_values[block.q[16 * k + i] >> 4]);
    }
  }
}

}  // namespace blocks

/// `elements` numbers at `data`, which may lie anywhere. Errors: shape, unless they fill whole blocks.
inline void dequantise(BlockType type, void const* data, std::int64_t elements, float* y,
                       std::source_location where = std::source_location::current()) {
  row_bytes(type, elements, where);
  blocks::with_block(type, [&](auto block) {
    constexpr int in_block = block_elements(block.type);
    static_assert(sizeof block == block_bytes(block.type), "tutti: a block has padding");
    auto const* from = static_cast<unsigned char const*>(data);
    for (std::int64_t i = 0; i < elements; i += in_block, from += sizeof block) {
      std::memcpy(&block, from, sizeof block);
      blocks::dequantise(block, y + i);
    }
  });
}

}  // namespace tutti
