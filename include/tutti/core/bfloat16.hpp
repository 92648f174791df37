// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// bfloat16 as a 16-bit storage type: the upper half of an IEEE binary32. Arithmetic happens in float.

#include <bit>
#include <compare>
#include <cstdint>

namespace tutti {

/// Rounds to nearest, ties to even. NaN stays NaN (quieted, sign and upper payload kept), overflow gives infinity,
/// subnormals are kept.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept : bits(round(value)) {}
  constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

  static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result;
    result.bits = bits;
    return result;
  }

  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept { return float(a) == float(b); }
  friend constexpr std::partial_ordering operator<=>(bfloat16 a, bfloat16 b) noexcept {
    return float(a) <=> float(b);
  }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    auto const u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x0040u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

}  // namespace tutti
