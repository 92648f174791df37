// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Rounding to a format of few bits in double arithmetic, written from the definition: scale so that the unit in the
/// last place is one, round to even, scale back.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::test {

/// `digits` bits of significand with the hidden one, `lowest` the exponent of the smallest normal number, `largest`
/// that of the largest.
inline double rounded_to(double value, int digits, int lowest, int largest) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = f * 2^exponent, f in [1/2, 1)
  int const unit = std::max(exponent - 1, lowest) - (digits - 1);
  double const result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (std::abs(result) >= std::ldexp(1.0, largest + 1))
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return result;
}

/// Floats that exercise a rounding: every exponent with significands at and next to every boundary of the kept bits,
/// and pseudorandom ones.
inline std::vector<std::uint32_t> dense_floats() {
  std::vector<std::uint32_t> bits;
  std::uint32_t random = 1;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    auto const add = [&](std::uint32_t significand) {
      bits.push_back((exponent << 23) | (significand & 0x7fffffu));
      bits.push_back(0x80000000u | (exponent << 23) | (significand & 0x7fffffu));
    };
    for (int bit = 0; bit < 23; ++bit)
      for (std::uint32_t around : {0u, 1u, 2u, 0x7fffffu, 0x7ffffeu}) {
        add((1u << bit) + around);
        add((3u << bit) + around);
        add((0x7fffffu << bit) + around);
      }
    for (int i = 0; i < 2000; ++i) {
      random = random * 1664525u + 1013904223u;
      add(random >> 9);
      add((random >> 9) & 0x7ff000u);  // halfway cases of both formats
      add((random >> 9) & 0x7f8000u);
    }
  }
  return bits;
}

}  // namespace tutti::test
