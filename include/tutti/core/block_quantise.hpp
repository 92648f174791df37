// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Floats as blocks of any BlockType, with a small squared error.

#include <tutti/core/block_fit.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

namespace tutti {

namespace blocks {

inline void quantise(float const* x, F32& block) noexcept { block.value = *x; }
inline void quantise(float const* x, F16& block) noexcept { block.value = float16(*x); }
inline void quantise(float const* x, BF16& block) noexcept { block.value = bfloat16(*x); }

/// Codes of 32 numbers, the low four bits as nibbles, bit 4 in `high` where the block has that.
template <class Block>
void put_codes(int const* codes, Block& block) noexcept {
  for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  if constexpr (requires { block.high; })
    for (int i = 0; i < 32; ++i)
      block.high[i / 8] = static_cast<std::uint8_t>(block.high[i / 8] | (codes[i] >> 4) << (i % 8));
}
template <class Block, class Levels>
void quantise_scaled(float const* x, Block& block, Levels const& levels) noexcept {
  block.d = float16(detail::fit_scale<32>(x, levels));
  float const d = block.d, inverse = d == 0.0f ? 0.0f : 1.0f / d;
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = levels.code(levels(inverse * x[i]));
  put_codes(codes, block);
}
template <class Block>
void quantise_affine(float const* x, Block& block, float top) noexcept {
  auto const fit = detail::fit_affine<32>(x, top, false);
  block.d = float16(fit.scale);
  block.m = float16(fit.offset);
  float const d = block.d, inverse = d == 0.0f ? 0.0f : 1.0f / d;
  int codes[32];
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<int>(detail::nearest(detail::clamp(inverse * (x[i] - float(block.m)), 0.0f, top)));
  put_codes(codes, block);
}

inline void quantise(float const* x, Q4_0& block) noexcept {
  quantise_scaled(x, block, detail::IntegerLevels{-8, 7});
}
inline void quantise(float const* x, Q5_0& block) noexcept {
  quantise_scaled(x, block, detail::IntegerLevels{-16, 15});
}
inline void quantise(float const* x, IQ4_NL& block) noexcept { quantise_scaled(x, block, detail::TableLevels{}); }
inline void quantise(float const* x, Q4_1& block) noexcept { quantise_affine(x, block, 15); }
inline void quantise(float const* x, Q5_1& block) noexcept { quantise_affine(x, block, 31); }

/// Codes from -127 to 127: kernels negate them.
inline void quantise(float const* x, Q8_0& block) noexcept {
  float peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::fabs(x[i]) > peak ? std::fabs(x[i]) : peak;
  block.d = float16(peak / 127.0f);
  float const d = block.d, inverse = d == 0.0f ? 0.0f : 1.0f / d;
  for (int i = 0; i < 32; ++i)
    block.q[i] = static_cast<std::int8_t>(detail::nearest(detail::clamp(inverse * x[i], -127.0f, 127.0f)));
}

inline void quantise(float const* x, Q2_K& block) noexcept {
  detail::AffineParts<16> parts;
  parts.fit(x, 3, 15);
  block.d = parts.d;
  block.dmin = parts.dmin;
  for (int k = 0; k < 16; ++k) block.scales[k] = static_cast<std::uint8_t>(parts.scales[k] | parts.mins[k] << 4);
  for (int e = 0; e < 256; ++e) {
    std::uint8_t& q = block.q[32 * (e / 128) + e % 32];
    q = static_cast<std::uint8_t>(q | parts.code(x, e, 3) << (2 * (e % 128 / 32)));
  }
}

/// Scales and minima of a Q4_K or Q5_K.
template <class Block>
void put_six_bit_pairs(detail::AffineParts<32> const& parts, Block& block) noexcept {
  block.d = parts.d;
  block.dmin = parts.dmin;
  for (int k = 0; k < 4; ++k) {
    block.scales[k] = static_cast<std::uint8_t>(parts.scales[k] | parts.scales[k + 4] >> 4 << 6);
    block.scales[k + 4] = static_cast<std::uint8_t>(parts.mins[k] | parts.mins[k + 4] >> 4 << 6);
    block.scales[k + 8] = static_cast<std::uint8_t>((parts.scales[k + 4] & 15) | (parts.mins[k + 4] & 15) << 4);
  }
}
inline void quantise(float const* x, Q4_K& block) noexcept {
  detail::AffineParts<32> parts;
  parts.fit(x, 15, 63);
  put_six_bit_pairs(parts, block);
  for (int e = 0; e < 256; ++e) {
    std::uint8_t& q = block.q[32 * (e / 64) + e % 32];
    q = static_cast<std::uint8_t>(q | parts.code(x, e, 15) << (4 * (e / 32 % 2)));
  }
}
inline void quantise(float const* x, Q5_K& block) noexcept {
  detail::AffineParts<32> parts;
  parts.fit(x, 31, 63);
  put_six_bit_pairs(parts, block);
  for (int e = 0; e < 256; ++e) {
    std::uint8_t &q = block.q[32 * (e / 64) + e % 32], &high = block.high[e % 32];
    int const code = parts.code(x, e, 31);
    q = static_cast<std::uint8_t>(q | (code & 15) << (4 * (e / 32 % 2)));
    high = static_cast<std::uint8_t>(high | (code >> 4) << (e / 32));
  }
}

inline void quantise(float const* x, Q3_K& block) noexcept {
  constexpr detail::IntegerLevels levels{-4, 3};
  detail::ScaledParts<16, detail::IntegerLevels> parts;
  parts.fit(x, levels, -32, 31);
  block.d = parts.d;
  for (int k = 0; k < 16; ++k) {
    int const s = parts.scales[k] + 32;
    std::uint8_t &low = block.scales[k % 8], &high = block.scales[8 + k % 4];
    low = static_cast<std::uint8_t>(low | (s & 15) << (4 * (k / 8)));
    high = static_cast<std::uint8_t>(high | (s >> 4) << (2 * (k / 4)));
  }
  for (int e = 0; e < 256; ++e) {
    int const code = parts.code(x, e, levels);
    std::uint8_t &q = block.q[32 * (e / 128) + e % 32], &high = block.high[e % 32];
    q = static_cast<std::uint8_t>(q | (code & 3) << (2 * (e % 128 / 32)));
    high = static_cast<std::uint8_t>(high | (code >> 2) << (e / 32));
  }
}
inline void quantise(float const* x, Q6_K& block) noexcept {
  constexpr detail::IntegerLevels levels{-32, 31};
  detail::ScaledParts<16, detail::IntegerLevels> parts;
  parts.fit(x, levels, -128, 127);
  block.d = parts.d;
  for (int k = 0; k < 16; ++k) block.scales[k] = static_cast<std::int8_t>(parts.scales[k]);
  for (int e = 0; e < 256; ++e) {
    int const code = parts.code(x, e, levels), half = e / 128, g = e % 128 / 32, l = e % 32;
    std::uint8_t &q = block.q[64 * half + 32 * (g % 2) + l], &high = block.high[32 * half + l];
    q = static_cast<std::uint8_t>(q | (code & 15) << (4 * (g / 2)));
    high = static_cast<std::uint8_t>(high | (code >> 4) << (2 * g));
  }
}
inline void quantise(float const* x, IQ4_XS& block) noexcept {
  constexpr detail::TableLevels levels;
  detail::ScaledParts<32, detail::TableLevels> parts;
  parts.fit(x, levels, -32, 31);
  block.d = parts.d;
  for (int k = 0; k < 8; ++k) {
    int const s = parts.scales[k] + 32;
    block.scales_low[k / 2] = static_cast<std::uint8_t>(block.scales_low[k / 2] | (s & 15) << (4 * (k % 2)));
    block.scales_high = static_cast<std::uint16_t>(block.scales_high | (s >> 4) << (2 * k));
  }
  for (int e = 0; e < 256; ++e) {
    std::uint8_t& q = block.q[16 * (e / 32) + e % 16];
    q = static_cast<std::uint8_t>(q | parts.code(x, e, levels) << (4 * (e % 32 / 16)));
  }
}

}  // namespace blocks

/// `elements` numbers at `x` as blocks at `data`, which may lie anywhere. Errors: shape, unless they fill whole blocks;
/// invalid_argument, when a quantised type meets NaN or infinity; overflow, when a scale does not fit float16.
/// Cost: some hundred operations a number for types of 256, less for the others.
inline void quantise(BlockType type, float const* x, std::int64_t elements, void* data,
                     std::source_location where = std::source_location::current()) {
  row_bytes(type, elements, where);
  if (is_quantised(type))
    for (std::int64_t i = 0; i < elements; ++i)
      if (!std::isfinite(x[i]))
        throw Error(ErrorKind::invalid_argument, "quantise",
                    concat("number ", i, " is ", std::isnan(x[i]) ? "NaN" : "infinite", ", which ", name(type),
                           " has no code for. Mend the weights, or store them as F16 or F32"),
                    where);
  blocks::with_block(type, [&](auto zero) {
    constexpr int in_block = block_elements(zero.type);
    auto* to = static_cast<unsigned char*>(data);
    for (std::int64_t i = 0; i < elements; i += in_block, to += sizeof zero) {
      auto block = zero;
      blocks::quantise(x + i, block);
      bool fits = true;
      if constexpr (requires { block.d; }) fits = fits && std::isfinite(float(block.d));
      if constexpr (requires { block.m; }) fits = fits && std::isfinite(float(block.m));
      if constexpr (requires { block.dmin; }) fits = fits && std::isfinite(float(block.dmin));
      if (!fits)
        throw Error(ErrorKind::overflow, "quantise",
                    concat("numbers ", i, " to ", i + in_block - 1, " are too large for the float16 scales of ",
                           name(type), ". Store them as BF16 or F32"),
                    where);
      std::memcpy(to, &block, sizeof block);
    }
  });
}

}  // namespace tutti
