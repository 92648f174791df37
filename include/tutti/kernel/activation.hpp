// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Activation functions of one element, on devices too: in float within 4 ulp or 1e-7, in double to full precision.

#include <cmath>

namespace tutti::kernel {

/// 1 / (1 + exp(-x)), and what is missing to 1, both without cancellation.
template <class Real>
struct Sigmoid {
  Real value, rest;

  constexpr explicit Sigmoid(Real x) {
    Real const e = std::exp(-std::fabs(x)), larger = Real(1) / (Real(1) + e), smaller = e * larger;
    value = x < 0 ? smaller : larger;
    rest = x < 0 ? larger : smaller;
  }
};

/// The argument of the sigmoid in the tanh form of GELU: 0.5 x (1 + tanh(u)) = x sigmoid(2 u).
template <class Real>
constexpr Real gelu_argument(Real x) {
  return Real(2 * 0.7978845608028654) * (x + Real(0.044715) * x * x * x);
}
template <class Real>
constexpr Real gelu(Real x) {
  return x / (Real(1) + std::exp(-gelu_argument(x)));
}
/// The slope.
template <class Real>
constexpr Real gelu_gradient(Real x) {
  Sigmoid<Real> const s(gelu_argument(x));
  Real const curve = s.value * s.rest;
  if (curve == 0) return s.value;  // far out, where x^2 may overflow
  return s.value + x * curve * Real(2 * 0.7978845608028654) * (Real(1) + Real(3 * 0.044715) * x * x);
}
template <class Real>
constexpr Real silu(Real x) {
  return x / (Real(1) + std::exp(-x));
}
template <class Real>
constexpr Real silu_gradient(Real x) {
  Sigmoid<Real> const s(x);
  return s.value * (Real(1) + x * s.rest);
}

}  // namespace tutti::kernel
