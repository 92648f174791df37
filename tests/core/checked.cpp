// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/checked.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>

using namespace tutti;

static_assert(checked_multiply(3, 5) == 15 && checked_add(-3, 5) == 2 && checked_cast<std::int8_t>(-128) == -128);

constexpr std::int64_t high = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min();

TEST_CASE("checked_multiply and checked_add throw instead of wrapping") {
  CHECK(checked_multiply(high, 1) == high);
  CHECK(checked_multiply(high, 0) == 0);
  CHECK(checked_multiply(low, 1) == low);
  CHECK(checked_add(high, 0) == high);
  CHECK(checked_add(high, low) == -1);
  REQUIRE_ERROR(checked_multiply(low, -1), ErrorKind::overflow, "does not fit 64 bits");
  REQUIRE_ERROR(checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31), ErrorKind::overflow,
                "4294967296 * 2147483648");
  REQUIRE_ERROR(checked_add(high, 1), ErrorKind::overflow, "9223372036854775807 + 1");
  REQUIRE_ERROR(checked_add(low, -1), ErrorKind::overflow, "checked.cpp");
}

TEST_CASE("checked_cast keeps the value or says the range: all pairs of 8-bit and 16-bit types") {
  int wrong = 0;
  auto const all = [&]<class From, class To>(From, To) {
    for (int i = std::numeric_limits<From>::min(); i <= std::numeric_limits<From>::max(); ++i) {
      bool const fits = i >= int{std::numeric_limits<To>::min()} && i <= int{std::numeric_limits<To>::max()};
      bool thrown = false;
      try {
        wrong += int{checked_cast<To>(static_cast<From>(i))} != i;
      } catch (Error const&) {
        thrown = true;
      }
      wrong += thrown == fits;
    }
  };
  all(std::int16_t{}, std::int8_t{});
  all(std::int16_t{}, std::uint8_t{});
  all(std::uint16_t{}, std::int8_t{});
  all(std::uint16_t{}, std::uint8_t{});
  all(std::int16_t{}, std::uint16_t{});
  all(std::uint16_t{}, std::int16_t{});
  all(std::int8_t{}, std::uint16_t{});
  CHECK(wrong == 0);
}

TEST_CASE("checked_cast between 64-bit types") {
  CHECK(checked_cast<std::uint64_t>(high) == std::uint64_t{1} * static_cast<std::uint64_t>(high));
  REQUIRE_ERROR(checked_cast<std::uint64_t>(std::int64_t{-1}), ErrorKind::overflow, "-1 is outside [0, ");
  REQUIRE_ERROR(checked_cast<std::int64_t>(std::uint64_t{1} << 63), ErrorKind::overflow,
                "9223372036854775808 is outside");
  REQUIRE_ERROR(checked_cast<std::int32_t>(std::int64_t{1} << 31), ErrorKind::overflow, "2147483648");
  REQUIRE_ERROR(checked_cast<std::int32_t>(low), ErrorKind::overflow, "-2147483648, 2147483647");
}
