// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of dropout (Srivastava et al. 2014) with random numbers that have no state.

#include <cstdint>

namespace tutti::kernel {

/// Random words below it drop an element: p * 2^32, rounded down.
/// Requires  0 <= p < 1
constexpr std::uint32_t dropout_threshold(double p) noexcept { return static_cast<std::uint32_t>(p * 0x1p32); }
/// Of elements that stay.
constexpr double dropout_scale(double p) noexcept { return 1 / (1 - p); }

/// Shapes       x, y (size)
/// Computes     y[i] = word(first + i) >= dropout_threshold(p) ? x[i] * float(dropout_scale(p)) : 0, where word(n) is
///              word n % 4 of Philox4x32-10 with counter (n/4 low, n/4 high, step, stream), key (seed low, seed high).
///              Key, step, stream and first are read when the kernel runs; of step and stream the low 32 bits count.
/// Aliasing     y may be x.
/// Determinism  every element for itself: the same on any device and number of threads
/// Source       Salmon et al. 2011 for Philox (tensor/random.hpp)
struct Dropout {
  std::int64_t size = 0;
  float const* x = nullptr;
  float* y = nullptr;
  double p = 0;
  std::uint64_t const* seed = nullptr;
  std::uint64_t const* step = nullptr;
  std::uint64_t const* stream = nullptr;
  std::uint64_t const* first = nullptr;
};

}  // namespace tutti::kernel
