// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contracts of the optimizer's kernels.

#include <tutti/core/bfloat16.hpp>

#include <cstdint>

namespace tutti::kernel {

/// AdamW in one pass (Loshchilov, Hutter 2019, arXiv 1711.05101).
/// Computes  g' = gradient * gradient_scale; m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2;
///           p -= learning_rate * (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay * p)
///           with correction_i = 1 - b_i^step, step counted from 1, computed in double by the caller; where they are
///           given also copy = p, rounded to nearest even, and cleared = 0. The scale undoes that of the loss and
///           clips.
/// Aliasing  `cleared` may be `gradient`: an element is read before it is set. Nothing else overlaps.
/// Numerics  elementwise, so independent of the number of threads.
struct AdamW {
  std::int64_t size = 0;
  float* parameter = nullptr;
  float const* gradient = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float gradient_scale = 1, correction1 = 1, correction2 = 1;
  bfloat16* copy = nullptr;
  float* cleared = nullptr;
};

/// Computes  *out = *out * accumulate + sum of x^2 in double, in blocks of fixed size summed in order:
///           bitwise the same for any number of threads.
struct SquareSum {
  std::int64_t size = 0;
  float const* x = nullptr;
  double* out = nullptr;
  bool accumulate = false;
};

}  // namespace tutti::kernel
