// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of root-mean-square normalisation (Zhang, Sennrich 2019, arXiv 1910.07467).

#include <cstdint>

namespace tutti::kernel {

/// Shapes    x, y (rows, channels); weight (channels); rstd (rows); T and Y float, on a GPU also bfloat16, both or Y
///           alone
/// Computes  rstd = 1 / sqrt(avg(x^2) + eps); y = x * rstd * weight, per row
/// Aliasing  y may be x where they have one type. rstd may be null when no gradient follows.
/// Numerics  the sum of squares is held in fp32: a row whose sum is beyond 3.4e38 becomes zero.
template <class T, class Y = T>
struct RmsNormOf {
  std::int64_t rows = 0, channels = 0;
  float eps = 1e-5f;
  T const* x = nullptr;
  float const* weight = nullptr;
  Y* y = nullptr;
  float* rstd = nullptr;
};
using RmsNorm = RmsNormOf<float>;

/// Shapes    dy, x, dx (rows, channels); weight, dweight (channels); rstd (rows)
/// Computes  xh = x * rstd; dweight = sum dy * xh [+ dweight, where `accumulate`]; h = dy * weight;
///           dx = rstd * (h - xh * avg(h * xh)) [+ dx_add]
/// Aliasing  dx may be dx_add, and dy where they have one type. Outputs that are null are not computed; dx_add may be
///           null.
/// Numerics  everything is held in fp32; sums over rows in an order independent of the number of threads.
template <class T, class Y = T>
struct RmsNormGradientOf {
  std::int64_t rows = 0, channels = 0;
  Y const* dy = nullptr;
  T const* x = nullptr;
  float const* weight = nullptr;
  float const* rstd = nullptr;
  T const* dx_add = nullptr;
  T* dx = nullptr;
  float* dweight = nullptr;
  bool accumulate = false;
};
using RmsNormGradient = RmsNormGradientOf<float>;

}  // namespace tutti::kernel
