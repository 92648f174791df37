// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether a <= b.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::less_equal> : detail::Comparison {
  static constexpr std::string_view name = "less_equal";

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a <= b ? Real(1) : Real(0);
  }
  TUTTI_VECTOR_BODY((V a, V b) { return one_or_zero(less_equal(a, b)); })
  template <class Register>
  static constexpr Register integer(Register a, Register b) {
    return a <= b;
  }

  static auto stablehlo(auto const& e) { return e.compare("LE", e.in(0), e.in(1)); }
  static auto onnx(auto const& e) { return e.test("LessOrEqual", e.in(0), e.in(1)); }
};

constexpr Var less_equal(Operand a, Operand b) { return detail::binary(Op::less_equal, a, b); }
constexpr Var greater_equal(Operand a, Operand b) { return detail::binary(Op::less_equal, b, a); }

}  // namespace tutti::graph
