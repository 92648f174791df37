// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The smallest whole number that is not below a.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::ceil> : detail::Elementwise<1> {
  static constexpr std::string_view name = "ceil", stablehlo = "ceil", onnx = "Ceil";
  static constexpr Differentiability differentiability = Differentiability::none;
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::ceil(a);
  }
  TUTTI_VECTOR_BODY((V a) { return ceil(a); })
};

constexpr Var ceil(Var x, Where where = Where::current()) { return detail::unary(Op::ceil, x, where); }

}  // namespace tutti::graph
