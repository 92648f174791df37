// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of the gate of SwiGLU feed-forward layers (Shazeer 2020, arXiv 2002.05202).

#include <cstdint>

namespace tutti::kernel {

/// Shapes    gate, up, y (rows, channels), rows `..._stride` elements apart, so that gate and up may lie in one
///           packed projection; T float, on a GPU also bfloat16
/// Computes  y = silu(gate) * up, silu(v) = v / (1 + exp(-v))
/// Aliasing  y may be gate or up where the strides are equal.
/// Numerics  silu within 4 ulp, then one rounding.
template <class T>
struct SwiGluOf {
  std::int64_t rows = 0, channels = 0;
  T const* gate = nullptr;
  std::int64_t gate_stride = 0;
  T const* up = nullptr;
  std::int64_t up_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;
};
using SwiGlu = SwiGluOf<float>;

/// Shapes    as of SwiGlu; dy, dgate, dup (rows, channels) with strides of their own
/// Computes  dgate = dy * up * silu'(gate); dup = dy * silu(gate), from one exponential
/// Aliasing  each output may be one of the inputs where the strides are equal; null outputs are not computed.
/// Numerics  silu' within 4 ulp or 1e-7.
template <class T>
struct SwiGluGradientOf {
  std::int64_t rows = 0, channels = 0;
  T const* dy = nullptr;
  std::int64_t dy_stride = 0;
  T const* gate = nullptr;
  std::int64_t gate_stride = 0;
  T const* up = nullptr;
  std::int64_t up_stride = 0;
  T* dgate = nullptr;
  std::int64_t dgate_stride = 0;
  T* dup = nullptr;
  std::int64_t dup_stride = 0;
};
using SwiGluGradient = SwiGluGradientOf<float>;

}  // namespace tutti::kernel
