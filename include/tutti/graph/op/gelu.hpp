// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The Gaussian error linear unit in its tanh form.
/// Source: Hendrycks and Gimpel 2016 (arXiv 1606.08415).

#include <tutti/graph/op/elementwise.hpp>
#include <tutti/kernel/activation.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::gelu> : detail::Elementwise<1> {
  static constexpr std::string_view name = "gelu";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return kernel::gelu(a);
  }
  static double precise(double a) {
    return 0.5 * a * (1 + std::tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
  }
  TUTTI_VECTOR_BODY((V a) { return gelu(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.make(Op::gelu_gradient, {n.g(), n.in(0)})); }

  static constexpr Var decomposition(auto const& p) {
    auto const x = p.in(0);
    return x * (tanh((x + x * x * x * 0.044715) * 0.7978845608028654) + 1.0) * 0.5;
  }
};

constexpr Var gelu(Var x, Where where = Where::current()) { return detail::unary(Op::gelu, x, where); }

}  // namespace tutti::graph
