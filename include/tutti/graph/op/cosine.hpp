// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The cosine.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::cosine> : detail::Elementwise<1> {
  static constexpr std::string_view name = "cosine", stablehlo = "cosine", onnx = "Cos";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::cos(a);
  }
  TUTTI_VECTOR_BODY((V a) { return cos(a); })

  static constexpr void gradient(auto const& n) { n.give(0, -(n.g() * sin(n.in(0)))); }
};

constexpr Var cos(Var x, Where where = Where::current()) { return detail::unary(Op::cosine, x, where); }

}  // namespace tutti::graph
