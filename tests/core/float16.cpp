// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/float16.hpp>

#include "half_oracle.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using tutti::float16;

static_assert(sizeof(float16) == 2 && alignof(float16) == 2);
static_assert(float16(1.0f).bits == 0x3c00 && float(float16::from_bits(0xc000)) == -2.0f);
static_assert(float16(1.0f) < float16(2.0f) && float16(0.0f) == float16(-0.0f));

TEST_CASE("float16: all 2^16 patterns widen to their value and come back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    auto const value = float16::from_bits(static_cast<std::uint16_t>(bits));
    int const exponent = static_cast<int>((bits >> 10) & 0x1f);
    int const significand = static_cast<int>(bits & 0x3ff);
    double const sign = (bits & 0x8000u) != 0 ? -1 : 1;
    if (exponent == 31 && significand != 0) {
      wrong += !std::isnan(float(value));
      wrong += float16(float(value)).bits != (bits | 0x200u);  // quiet, the rest kept
      continue;
    }
    double const exact = exponent == 31  ? sign * std::numeric_limits<double>::infinity()
                         : exponent == 0 ? sign * std::ldexp(significand, -24)
                                         : sign * std::ldexp(1024 + significand, exponent - 25);
    wrong += double(float(value)) != exact;
    wrong += std::signbit(float(value)) != (sign < 0);
    wrong += float16(float(value)).bits != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("float16: floats of every exponent round to nearest even") {
  int wrong = 0;
  for (std::uint32_t bits : tutti::test::dense_floats()) {
    float const value = std::bit_cast<float>(bits);
    float16 const got(value);
    if (std::isnan(value)) {
      wrong += !std::isnan(float(got)) || std::signbit(float(got)) != std::signbit(value);
      continue;
    }
    double const expected = tutti::test::rounded_to(value, 11, -14, 15);
    wrong += double(float(got)) != expected || std::signbit(float(got)) != std::signbit(value);
  }
  CHECK(wrong == 0);
}

#if defined(__x86_64__)
namespace {
__attribute__((target("f16c"))) std::uint16_t processor_half(float value) {
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}
}  // namespace
TEST_CASE("float16: the processor's conversion gives the same bits, NaN included") {
  if (!__builtin_cpu_supports("f16c")) return;
  int wrong = 0;
  for (std::uint32_t bits : tutti::test::dense_floats()) {
    float const value = std::bit_cast<float>(bits);
    wrong += float16(value).bits != processor_half(value);
  }
  CHECK(wrong == 0);
}
#endif

TEST_CASE("float16: the ends of the range") {
  CHECK(float16(65504.0f).bits == 0x7bff);
  CHECK(float16(65519.996f).bits == 0x7bff);
  CHECK(float16(65520.0f).bits == 0x7c00);
  CHECK(float16(-1e30f).bits == 0xfc00);
  CHECK(float16(0x1p-24f).bits == 1);
  CHECK(float16(0x1p-25f).bits == 0);
  CHECK(float16(0x1.000002p-25f).bits == 1);
  CHECK(float16(0x1.ffcp-15f).bits == 0x0400);
  CHECK(float16(-0.0f).bits == 0x8000);
}
