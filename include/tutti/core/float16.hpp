// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// IEEE 754 binary16 as a storage type. Arithmetic happens in float.

#include <bit>
#include <compare>
#include <cstdint>

namespace tutti {

/// Rounds to nearest, ties to even; from 65520 up gives infinity; results below 2^-14 are subnormal, below or at
/// 2^-25 zero. NaN stays NaN (quieted, sign and upper payload kept).
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;
  constexpr explicit float16(float value) noexcept : bits(round(value)) {}
  constexpr operator float() const noexcept { return widen(bits); }

  static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 result;
    result.bits = bits;
    return result;
  }

  friend constexpr bool operator==(float16 a, float16 b) noexcept { return float(a) == float(b); }
  friend constexpr std::partial_ordering operator<=>(float16 a, float16 b) noexcept { return float(a) <=> float(b); }

 private:
  static constexpr std::uint16_t round(float value) noexcept {
    auto const u = std::bit_cast<std::uint32_t>(value);
    auto const sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    std::uint32_t const magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above
    if (magnitude < 0x38800000u) {                                                    // below 2^-14: subnormal
      if (magnitude <= 0x33000000u) return sign;                                      // at most 2^-25
      std::uint32_t const exponent = magnitude >> 23;
      std::uint32_t const significand = (magnitude & 0x7fffffu) | 0x800000u;
      std::uint32_t const shift = 126u - exponent;  // 14 .. 24
      std::uint32_t const kept = significand >> shift;
      std::uint32_t const rest = significand & ((1u << shift) - 1u);
      std::uint32_t const half = 1u << (shift - 1u);
      return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
    }
    std::uint32_t const rebased = magnitude - 0x38000000u;
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }

  static constexpr float widen(std::uint16_t half) noexcept {
    std::uint32_t const sign = std::uint32_t{half & 0x8000u} << 16;
    std::uint32_t const exponent = (half >> 10) & 0x1fu;
    std::uint32_t significand = half & 0x3ffu;
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (significand << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (significand << 13));
    if (significand == 0) return std::bit_cast<float>(sign);
    std::uint32_t const lift = static_cast<std::uint32_t>(std::countl_zero(significand)) - 21u;
    significand = (significand << lift) & 0x3ffu;
    return std::bit_cast<float>(sign | ((113u - lift) << 23) | (significand << 13));
  }
};

}  // namespace tutti
