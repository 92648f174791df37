// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of rounding the rows of a matrix to int8, each with a scale of its own.

#include <cstdint>

namespace tutti::kernel {

/// Shapes    x (M, K) element (i, k) at x[i * x_row + k], q (M, K) at q[i * q_row + k], scales (M)
/// Computes  scales[i] = max_k |x(i, k)| / 127; q(i, k) = x(i, k) * (127 / max_k |x(i, k)|) to the nearest integer,
///           ties to even: in [-127, 127], zero for zero. x is about scales[i] * q, off by half a scale at most but for
///           roundings of float32.
/// Range     a row whose largest magnitude is below 2^-120 counts as zeros: scale and q are 0. One with NaN or infinity
///           has that as its scale, which so reaches the result of a product.
/// Use       the left operand of a kernel::Gemm in int8 (`scales` are its row scales), and its right operand when x is
///           a weight with a row for each output channel (`scales` are its column scales, b_row 1, b_column q_row).
/// Numerics  every row for itself, on every ISA and any number of threads the same.
struct QuantizeRows {
  std::int64_t m = 0, k = 0;
  float const* x = nullptr;
  std::int64_t x_row = 0;
  std::int8_t* q = nullptr;
  std::int64_t q_row = 0;
  float* scales = nullptr;
};

}  // namespace tutti::kernel
