// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The larger one; NaN where either is. Ties: each side gets half the gradient.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::maximum> : detail::Elementwise<2> {
  static constexpr std::string_view name = "maximum", stablehlo = "maximum", onnx = "Max";

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a > b || a != a ? a : b;
  }
  TUTTI_VECTOR_BODY((V a, V b) { return maximum(a, b); })
  template <class Register>
  static constexpr Register integer(Register a, Register b) {
    return a < b ? b : a;
  }

  static constexpr void gradient(auto const& n) {
    auto const half = select(equal(n.in(0), n.in(1)), n.g() * 0.5, 0.0);
    n.give(0, select(less(n.in(1), n.in(0)), n.g(), half));
    n.give(1, select(less(n.in(0), n.in(1)), n.g(), half));
  }
};

constexpr Var maximum(Operand a, Operand b) { return detail::binary(Op::maximum, a, b); }

}  // namespace tutti::graph
