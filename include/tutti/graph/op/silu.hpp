// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// x logistic(x), also known as swish.

#include <tutti/graph/op/elementwise.hpp>
#include <tutti/kernel/activation.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::silu> : detail::Elementwise<1> {
  static constexpr std::string_view name = "silu";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return kernel::silu(a);
  }
  static double precise(double a) { return a < -1000 ? -0.0 : a / (1 + std::exp(-a)); }
  TUTTI_VECTOR_BODY((V a) { return silu(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.make(Op::silu_gradient, {n.g(), n.in(0)})); }

  static constexpr Var decomposition(auto const& p) { return p.in(0) * logistic(p.in(0)); }
};

constexpr Var silu(Var x, Where where = Where::current()) { return detail::unary(Op::silu, x, where); }

}  // namespace tutti::graph
