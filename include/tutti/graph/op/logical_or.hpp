// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether one of them holds.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::logical_or> : detail::Logical<2> {
  static constexpr std::string_view name = "logical_or", stablehlo = "or", onnx = "Or";

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a != 0 || b != 0 ? Real(1) : Real(0);
  }
  TUTTI_VECTOR_BODY((V a, V b) {
    return select(equal(a, like(a, 0.0f)), one_or_zero(not_equal(b, like(b, 0.0f))), like(a, 1.0f));
  })
  template <class Register>
  static constexpr Register integer(Register a, Register b) {
    return a != 0 || b != 0;
  }
};

constexpr Var operator||(Var a, Var b) { return detail::binary(Op::logical_or, a, b); }

}  // namespace tutti::graph
