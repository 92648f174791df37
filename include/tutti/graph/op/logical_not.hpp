// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether it does not hold.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::logical_not> : detail::Logical<1> {
  static constexpr std::string_view name = "logical_not", stablehlo = "not", onnx = "Not";

  template <class Real>
  static constexpr Real scalar(Real a) {
    return a == 0 ? Real(1) : Real(0);
  }
  TUTTI_VECTOR_BODY((V a) { return one_or_zero(equal(a, like(a, 0.0f))); })
  template <class Register>
  static constexpr Register integer(Register a) {
    return a == 0;
  }
};

constexpr Var operator!(Operand a) { return detail::unary(Op::logical_not, a.var, a.where); }

}  // namespace tutti::graph
