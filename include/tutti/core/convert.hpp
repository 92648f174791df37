// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Value conversion between any two element types, rounded once. A cast through an intermediate type rounds twice:
/// a double cast to float and then to bfloat16 may end one unit away from the nearest bfloat16.

#include <tutti/core/concat.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <source_location>
#include <string>
#include <type_traits>

namespace tutti {

/// What happens to a fraction when a floating value becomes an integer.
enum class Rounding : unsigned char {
  nearest_even,  ///< to the nearest integer, halves to the even one
  toward_zero,   ///< the fraction is dropped, as a cast of C++ does
  exact,         ///< a fraction is an error
};

namespace detail {

/// Rounds to float so that a second rounding to a 16-bit type gives what one rounding would: toward zero, and the
/// last bit is set if anything was lost (round to odd).
constexpr float float_to_odd(double value) noexcept {
  float const nearest = static_cast<float>(value);
  if (value != value || static_cast<double>(nearest) == value) return nearest;
  double const magnitude = value < 0 ? -value : value;
  double const rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (rounded > magnitude) --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// A 64-bit integer as a double whose last bit remembers what did not fit, for the same purpose.
template <class From>
constexpr double double_to_odd(From value) noexcept {
  if constexpr (sizeof(From) < 8) {
    return static_cast<double>(value);
  } else {
    bool const negative = value < From{0};
    std::uint64_t const bits = static_cast<std::uint64_t>(value);
    std::uint64_t const magnitude = negative ? std::uint64_t{0} - bits : bits;
    if (magnitude >> 53 == 0) return negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
    std::uint64_t const kept = (magnitude >> 11) | ((magnitude & 0x7ffu) != 0 ? 1u : 0u);
    return (negative ? -2048.0 : 2048.0) * static_cast<double>(kept);
  }
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
template <class T>
inline constexpr bool is_real = is_half<T> || std::is_floating_point_v<T>;

template <class = void>
[[noreturn]] void throw_conversion(std::string const& value, DType from, DType to, char const* why,
                                          std::source_location where) {
  throw Error(ErrorKind::overflow, "convert",
              concat(value, " of ", name(from), concat(" ", why), " ", name(to)), where);
}

}  // namespace detail

/// `value` as a `To`. To a floating type: nearest, ties to even, overflow gives infinity, NaN stays NaN. To an integer:
/// by `rounding`. To bool: whether it is not zero (NaN is true).
/// Errors: overflow, when an integer type cannot hold the value, or when `exact` meets a fraction.
template <Element To, Element From>
constexpr To convert(From value, Rounding rounding = Rounding::exact,
                     std::source_location where = std::source_location::current()) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, std::byte>) {
    return convert<To>(static_cast<std::uint8_t>(value), rounding, where);
  } else if constexpr (std::is_same_v<To, std::byte>) {
    return static_cast<std::byte>(convert<std::uint8_t>(value, rounding, where));
  } else if constexpr (std::is_same_v<To, bool>) {
    if constexpr (detail::is_half<From>) return static_cast<float>(value) != 0.0f;
    else return value != From{0};
  } else if constexpr (detail::is_half<To>) {
    if constexpr (detail::is_half<From> || std::is_same_v<From, float>) return To(static_cast<float>(value));
    else if constexpr (std::is_same_v<From, double>) return To(detail::float_to_odd(value));
    else return To(detail::float_to_odd(detail::double_to_odd(value)));
  } else if constexpr (std::is_floating_point_v<To>) {
    if constexpr (detail::is_half<From>) return static_cast<To>(static_cast<float>(value));
    else return static_cast<To>(value);
  } else if constexpr (detail::is_half<From>) {
    return convert<To>(static_cast<float>(value), rounding, where);
  } else if constexpr (std::is_floating_point_v<From>) {
    From const truncated = std::trunc(value);
    From whole = truncated;
    if (rounding == Rounding::nearest_even) {
      From const rest = value > truncated ? value - truncated : truncated - value;  // exact
      bool const odd = std::fmod(truncated, From{2}) != 0;
      if (rest > From{0.5} || (rest == From{0.5} && odd)) whole += value < 0 ? From{-1} : From{1};
    }
    // Both bounds are powers of two (or zero), so they are exact in every floating type.
    From const upper = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From{2};
    From const lower = static_cast<From>(std::numeric_limits<To>::min());
    if (!(whole >= lower && whole < upper))
      detail::throw_conversion(std::to_string(value), dtype_of<From>, dtype_of<To>, "does not fit", where);
    if (rounding == Rounding::exact && whole != value)
      detail::throw_conversion(std::to_string(value), dtype_of<From>, dtype_of<To>, "is not a whole number for", where);
    return static_cast<To>(whole);
  } else {
    To const result = static_cast<To>(value);
    if (static_cast<From>(result) != value || (value < From{}) != (result < To{}))
      detail::throw_conversion(std::to_string(value), dtype_of<From>, dtype_of<To>, "does not fit", where);
    return result;
  }
}

}  // namespace tutti
