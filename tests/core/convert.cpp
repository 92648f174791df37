// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/convert.hpp>

#include "half_oracle.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace tutti;

static_assert(convert<bfloat16>(1).bits == 0x3f80 && convert<float>(bfloat16(2.0f)) == 2.0f && convert<bool>(3));
static_assert(convert<std::byte>(255) == std::byte{255} && convert<int>(std::byte{7}) == 7);

TEST_CASE("convert rounds a double to the 16-bit types once: halfway points and their neighbours") {
  int wrong = 0;
  auto const check = [&](double value) {
    double const as_bfloat16 = float(convert<bfloat16>(value));
    double const as_float16 = float(convert<float16>(value));
    wrong += as_bfloat16 != test::rounded_to(value, 8, -126, 127);
    wrong += as_float16 != test::rounded_to(value, 11, -14, 15);
    wrong += std::signbit(as_bfloat16) != std::signbit(value) || std::signbit(as_float16) != std::signbit(value);
  };
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    double const here = float(float16::from_bits(static_cast<std::uint16_t>(bits)));
    double const next =
        bits + 1 == 0x7c00 ? 65536 : double(float(float16::from_bits(static_cast<std::uint16_t>(bits + 1))));
    double const half = (here + next) / 2;
    for (double value : {half, std::nextafter(half, 0.0), std::nextafter(half, 1e9)}) {
      check(value);
      check(-value);
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    double const here = float(bfloat16::from_bits(static_cast<std::uint16_t>(bits)));
    double const next =
        bits + 1 == 0x7f80 ? 0x1p128 : double(float(bfloat16::from_bits(static_cast<std::uint16_t>(bits + 1))));
    double const half = here + (next - here) / 2;
    for (double value : {half, std::nextafter(half, 0.0), std::nextafter(half, 1e300)}) {
      check(value);
      check(-value);
    }
  }
  for (double value : {1e300, 5e-324, 0.0, -0.0, std::numeric_limits<double>::infinity()}) {
    check(value);
    check(-value);
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(float(convert<bfloat16>(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("convert rounds 64-bit integers once") {
  std::int64_t const tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);  // halfway for bfloat16
  CHECK(float(convert<bfloat16>(tie)) == 0x1p62f);
  CHECK(float(convert<bfloat16>(tie + 1)) == 0x1.02p62f);
  CHECK(float(convert<bfloat16>(-tie - 1)) == -0x1.02p62f);
  CHECK(float(convert<bfloat16>(std::numeric_limits<std::int64_t>::min())) == -0x1p63f);
  CHECK(float(convert<bfloat16>(std::numeric_limits<std::uint64_t>::max())) == 0x1p64f);
  CHECK(convert<float>((std::int64_t{1} << 62) + (std::int64_t{1} << 38) + 1) == 0x1.000002p62f);
  CHECK(convert<float16>(65519).bits == 0x7bff);
  CHECK(convert<float16>(65520).bits == 0x7c00);
  CHECK(convert<float16>(-3).bits == 0xc200);
}

TEST_CASE("convert to integers rounds by name and refuses what does not fit") {
  CHECK(convert<int>(2.5, Rounding::nearest_even) == 2);
  CHECK(convert<int>(3.5f, Rounding::nearest_even) == 4);
  CHECK(convert<int>(-0.5, Rounding::nearest_even) == 0);
  CHECK(convert<int>(-1.5, Rounding::nearest_even) == -2);
  CHECK(convert<int>(-2.7, Rounding::toward_zero) == -2);
  CHECK(convert<int>(0.49999999999999994, Rounding::nearest_even) == 0);
  CHECK(convert<std::int64_t>(4503599627370497.5, Rounding::nearest_even) == 4503599627370498);
  CHECK(convert<std::uint8_t>(bfloat16(255.0f)) == 255);
  CHECK(convert<std::int8_t>(-128.9, Rounding::toward_zero) == -128);
  CHECK(convert<std::int64_t>(-0x1p63) == std::numeric_limits<std::int64_t>::min());
  REQUIRE_ERROR(convert<std::int64_t>(0x1p63), ErrorKind::overflow, "does not fit int64");
  REQUIRE_ERROR(convert<std::uint64_t>(0x1p64f), ErrorKind::overflow, "does not fit uint64");
  REQUIRE_ERROR(convert<std::uint8_t>(255.5, Rounding::nearest_even), ErrorKind::overflow,
                "of float64 does not fit uint8");
  REQUIRE_ERROR(convert<int>(1.5), ErrorKind::overflow, "is not a whole number for int32");
  REQUIRE_ERROR(convert<int>(std::nan("")), ErrorKind::overflow, "does not fit");
  REQUIRE_ERROR(convert<std::uint8_t>(-1), ErrorKind::overflow, "-1 of int32 does not fit uint8");
  REQUIRE_ERROR(convert<std::byte>(256), ErrorKind::overflow, "does not fit");
  CHECK(convert<std::uint8_t>(-0.25, Rounding::toward_zero) == 0);
}

TEST_CASE("convert between floats and to bool") {
  CHECK(convert<float>(1e300) == std::numeric_limits<float>::infinity());
  CHECK(convert<double>(float16(0x1p-24f)) == 0x1p-24);
  CHECK(convert<bool>(bfloat16(-0.0f)) == false);
  CHECK(convert<bool>(std::numeric_limits<float>::quiet_NaN()));
  CHECK(convert<float16>(bfloat16(1e30f)).bits == 0x7c00);
  CHECK(convert<double>(true) == 1);
}
