// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// g, x: g times the slope of gelu at x.

#include <tutti/graph/op/elementwise.hpp>
#include <tutti/kernel/activation.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::gelu_gradient> : detail::Elementwise<2> {
  static constexpr std::string_view name = "gelu_gradient";
  static constexpr Differentiability differentiability = Differentiability::first_order;

  template <class Real>
  static constexpr Real scalar(Real g, Real x) {
    return g * kernel::gelu_gradient(x);
  }
  static double precise(double g, double x) {
    double const t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x));
  }
  TUTTI_VECTOR_BODY((V g, V x) { return mul(g, gelu_gradient(x)); })

  static constexpr Var decomposition(auto const& p) {
    constexpr double factor = 0.7978845608028654, cubic = 0.044715;
    auto const x = p.in(1), t = tanh((x + x * x * x * cubic) * factor);
    return p.in(0) * ((t + 1.0) * 0.5 + x * (1.0 - t * t) * (x * x * (3 * cubic) + 1.0) * (0.5 * factor));
  }
};

}  // namespace tutti::graph
