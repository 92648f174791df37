// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// g, x: g times the slope of silu at x.

#include <tutti/graph/op/elementwise.hpp>
#include <tutti/kernel/activation.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::silu_gradient> : detail::Elementwise<2> {
  static constexpr std::string_view name = "silu_gradient";
  static constexpr Differentiability differentiability = Differentiability::first_order;

  template <class Real>
  static constexpr Real scalar(Real g, Real x) {
    return g * kernel::silu_gradient(x);
  }
  static double precise(double g, double x) {
    if (std::abs(x) > 1000) return g * (x > 0 ? 1 : 0);
    double const s = 1 / (1 + std::exp(-x));
    return g * (s * (1 + x / (1 + std::exp(x))));
  }
  TUTTI_VECTOR_BODY((V g, V x) { return mul(g, silu_gradient(x)); })

  static constexpr Var decomposition(auto const& p) {
    auto const x = p.in(1), s = logistic(x);
    return p.in(0) * (s * (x * (1.0 - s) + 1.0));
  }
};

}  // namespace tutti::graph
