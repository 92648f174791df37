// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The Gaussian error linear unit a P(X <= a), X normal, without the tanh form's approximation.
/// Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415).

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::exact_gelu> : detail::Elementwise<1> {
  static constexpr std::string_view name = "exact_gelu";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return a < -40 ? Real(-0.0) : a * std::erfc(a * Real(-0.70710678118654752)) / 2;
  }
  TUTTI_VECTOR_BODY((V a) { return exact_gelu(a); })

  /// P(X <= a) + a p(a).
  static constexpr void gradient(auto const& n) {
    auto const x = n.in(0);
    auto const density = exp(x * x * -0.5) * 0.39894228040143268;
    n.give(0, n.g() * ((erf(x * 0.70710678118654752) + 1.0) * 0.5 + x * density));
  }
  static constexpr Var decomposition(auto const& p) {
    return p.in(0) * (erf(p.in(0) * 0.70710678118654752) + 1.0) * 0.5;
  }
};

constexpr Var exact_gelu(Var x, Where where = Where::current()) { return detail::unary(Op::exact_gelu, x, where); }

}  // namespace tutti::graph
