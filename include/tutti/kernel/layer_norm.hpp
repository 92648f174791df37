// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of layer normalisation (Ba, Kiros, Hinton 2016, arXiv 1607.06450).

#include <cstdint>

namespace tutti::kernel {

/// Shapes    x, y (rows, channels); gamma, beta (channels); mean, rstd (rows); T and Y float, on a GPU also bfloat16,
///           both or Y alone
/// Computes  mean = avg(x); rstd = 1 / sqrt(avg((x - mean)^2) + eps); y = (x - mean) * rstd * gamma + beta, per row
/// Aliasing  y may be x where they have one type. mean and rstd may be null when no gradient follows.
template <class T, class Y = T>
struct LayerNormOf {
  std::int64_t rows = 0, channels = 0;
  float eps = 1e-5f;
  T const* x = nullptr;
  float const* gamma = nullptr;
  float const* beta = nullptr;
  Y* y = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
};
using LayerNorm = LayerNormOf<float>;

/// Shapes    dy, x, dx (rows, channels); gamma, dgamma, dbeta (channels); mean, rstd (rows)
/// Computes  xh = (x - mean) * rstd; dbeta = sum dy; dgamma = sum dy * xh; h = dy * gamma;
///           dx = rstd * (h - avg(h) - xh * avg(h * xh)) [+ dx_add]
/// Aliasing  dx may be dx_add, and dy where they have one type. Outputs that are null are not computed; dx_add may be
///           null.
/// Numerics  everything is held in fp32; sums over rows in an order independent of the number of threads.
template <class T, class Y = T>
struct LayerNormGradientOf {
  std::int64_t rows = 0, channels = 0;
  Y const* dy = nullptr;
  T const* x = nullptr;
  float const* gamma = nullptr;
  float const* mean = nullptr;
  float const* rstd = nullptr;
  T const* dx_add = nullptr;
  T* dx = nullptr;
  float* dgamma = nullptr;
  float* dbeta = nullptr;
};
using LayerNormGradient = LayerNormGradientOf<float>;

}  // namespace tutti::kernel
