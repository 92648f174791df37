// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How far a computed value may be from the exact one. A tolerance is derived, never chosen: a sum of n terms held in a
/// format with unit roundoff u and accumulated in one with unit roundoff a is off by about n*a + u times the sum of
/// magnitudes in the worst case, and by sqrt(n)*a + u for rounding errors that do not conspire.

#include <tutti/core/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tutti::test {

/// Unit roundoff: half the distance from 1 to the next value of the type; 0 for integers.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return 0x1p-8;
    case DType::float16: return 0x1p-11;
    case DType::float32: return 0x1p-24;
    case DType::float64: return 0x1p-53;
    default: return 0;
  }
}

/// Relative bound for a result of type `result`, accumulated in `accumulation` over `length` terms; multiply by the sum
/// of the terms' magnitudes. Safety factor 4 over the statistical bound.
inline double tolerance(DType result, DType accumulation, std::int64_t length = 1) {
  double const terms = std::sqrt(static_cast<double>(std::max<std::int64_t>(length, 1)));
  return 4 * (terms * unit_roundoff(accumulation) + unit_roundoff(result));
}
/// Results accumulated in their own type, or in float for the 16-bit types.
inline double tolerance(DType result, std::int64_t length = 1) {
  bool const narrow = result == DType::bfloat16 || result == DType::float16;
  return tolerance(result, narrow ? DType::float32 : result, length);
}
template <Element T>
double tolerance(std::int64_t length = 1) {
  return tolerance(dtype_of<T>, length);
}

/// Whether `value` is within `relative` times `scale` of `exact`. NaN equals NaN, infinities equal themselves. `scale`
/// is the sum of magnitudes behind the value; by default the exact value itself, and never below the smallest normal
/// float, so that zeros compare.
inline bool close(double value, double exact, double relative, double scale = -1) {
  if (std::isnan(exact)) return std::isnan(value);
  if (std::isinf(exact)) return value == exact;
  if (scale < 0) scale = std::abs(exact);
  return std::abs(value - exact) <= relative * std::max(scale, 0x1p-126);
}

/// Distance in representable floats between two floats; 0 for equal, and for NaN with NaN.
inline std::int64_t ulps(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INT64_MAX;
  auto const ordered = [](float x) {
    std::int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return std::int64_t{bits < 0 ? static_cast<std::int32_t>(0x80000000u - static_cast<std::uint32_t>(bits)) : bits};
  };
  return std::abs(ordered(a) - ordered(b));
}

}  // namespace tutti::test
