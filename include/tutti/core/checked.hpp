// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Integer arithmetic that throws `Error` (kind overflow) instead of wrapping. Sizes read from files, flags and
/// peers go through it before they are used.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <source_location>
#include <string>

namespace tutti {

/// a * b for sizes. Usable in constant expressions, where an overflow is a compile error.
template <class = void>
constexpr std::int64_t checked_multiply(std::int64_t a, std::int64_t b,
                                        std::source_location where = std::source_location::current()) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw Error(ErrorKind::overflow, "checked_multiply",
                concat(a, " * ", b, " does not fit 64 bits"), where);
  return result;
}

/// a + b for sizes.
template <class = void>
constexpr std::int64_t checked_add(std::int64_t a, std::int64_t b,
                                   std::source_location where = std::source_location::current()) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result))
    throw Error(ErrorKind::overflow, "checked_add",
                concat(a, " + ", b, " does not fit 64 bits"), where);
  return result;
}

/// Value-preserving conversion between integer types.
template <std::integral To, std::integral From>
constexpr To checked_cast(From value, std::source_location where = std::source_location::current()) {
  To const result = static_cast<To>(value);
  bool const same_sign = (value < From{}) == (result < To{});
  if (static_cast<From>(result) != value || !same_sign)
    throw Error(
        ErrorKind::overflow, "checked_cast",
        concat(value, " is outside [", std::numeric_limits<To>::min(), ", ", std::numeric_limits<To>::max(), "]"),
        where);
  return result;
}

}  // namespace tutti
