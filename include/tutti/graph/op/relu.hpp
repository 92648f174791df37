// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a where it is positive, else 0; NaN stays NaN.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::relu> : detail::Elementwise<1> {
  static constexpr std::string_view name = "relu";

  template <class Real>
  static constexpr Real scalar(Real a) {
    return a > 0 || a != a ? a : Real(0);
  }
  TUTTI_VECTOR_BODY((V a) { return maximum(a, like(a, 0.0f)); })
  template <class Register>
  static constexpr Register integer(Register a) {
    return a > 0 ? a : 0;
  }

  /// 0 at 0, as elsewhere in the field.
  static constexpr void gradient(auto const& n) { n.give(0, select(less(0.0, n.in(0)), n.g(), 0.0)); }

  static auto stablehlo(auto const& e) { return e.map("maximum", e.in(), e.number(0)); }
  static auto onnx(auto const& e) { return e.map("Max", e.in(), e.number(0)); }
};

constexpr Var relu(Var x, Where where = Where::current()) { return detail::unary(Op::relu, x, where); }

}  // namespace tutti::graph
