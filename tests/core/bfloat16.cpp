// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/bfloat16.hpp>

#include "half_oracle.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <limits>

using tutti::bfloat16;

static_assert(sizeof(bfloat16) == 2 && alignof(bfloat16) == 2);
static_assert(bfloat16(1.0f).bits == 0x3f80 && float(bfloat16::from_bits(0xc000)) == -2.0f);
static_assert(bfloat16(1.0f) < bfloat16(2.0f) && bfloat16(0.0f) == bfloat16(-0.0f));

TEST_CASE("bfloat16: all 2^16 patterns widen to their value and come back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto const value = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    int const exponent = static_cast<int>((bits >> 7) & 0xff);
    int const significand = static_cast<int>(bits & 0x7f);
    double const sign = (bits & 0x8000u) != 0 ? -1 : 1;
    if (exponent == 255 && significand != 0) {
      wrong += !std::isnan(float(value));
      wrong += bfloat16(float(value)).bits != (bits | 0x40u);  // quiet, the rest kept
      continue;
    }
    double const exact = exponent == 255 ? sign * std::numeric_limits<double>::infinity()
                         : exponent == 0 ? sign * std::ldexp(significand, -133)
                                         : sign * std::ldexp(128 + significand, exponent - 134);
    wrong += double(float(value)) != exact;
    wrong += std::signbit(float(value)) != (sign < 0);
    wrong += bfloat16(float(value)).bits != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16: floats of every exponent round to nearest even") {
  int wrong = 0;
  for (std::uint32_t bits : tutti::test::dense_floats()) {
    float const value = std::bit_cast<float>(bits);
    bfloat16 const got(value);
    if (std::isnan(value)) {
      wrong += !std::isnan(float(got)) || std::signbit(float(got)) != std::signbit(value);
      continue;
    }
    double const expected = tutti::test::rounded_to(value, 8, -126, 127);
    wrong += double(float(got)) != expected || std::signbit(float(got)) != std::signbit(value);
  }
  CHECK(wrong == 0);
}

TEST_CASE("bfloat16: the ends of the range") {
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(bfloat16(-std::numeric_limits<float>::max()).bits == 0xff80);
  CHECK(bfloat16(0x1.fep127f).bits == 0x7f7f);
  CHECK(bfloat16(0x1.fefffep127f).bits == 0x7f7f);
  CHECK(bfloat16(0x1.ffp127f).bits == 0x7f80);
  CHECK(bfloat16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(bfloat16(-0.0f).bits == 0x8000);
  CHECK(bfloat16(std::numeric_limits<float>::quiet_NaN()) != bfloat16(std::numeric_limits<float>::quiet_NaN()));
}
