// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The hyperbolic tangent.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::tanh> : detail::Elementwise<1> {
  static constexpr std::string_view name = "tanh", stablehlo = "tanh", onnx = "Tanh";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::tanh(a);
  }
  TUTTI_VECTOR_BODY((V a) { return tanh(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * (1.0 - n.out() * n.out())); }
};

constexpr Var tanh(Var x, Where where = Where::current()) { return detail::unary(Op::tanh, x, where); }

}  // namespace tutti::graph
