// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The largest whole number that is not above a.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::floor> : detail::Elementwise<1> {
  static constexpr std::string_view name = "floor", stablehlo = "floor", onnx = "Floor";
  static constexpr Differentiability differentiability = Differentiability::none;
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::floor(a);
  }
  TUTTI_VECTOR_BODY((V a) { return floor(a); })
};

constexpr Var floor(Var x, Where where = Where::current()) { return detail::unary(Op::floor, x, where); }

}  // namespace tutti::graph
