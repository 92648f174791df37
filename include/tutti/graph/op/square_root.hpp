// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The square root.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::square_root> : detail::Elementwise<1> {
  static constexpr std::string_view name = "square_root", stablehlo = "sqrt", onnx = "Sqrt";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::sqrt(a);
  }
  TUTTI_VECTOR_BODY((V a) { return sqrt(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() / (n.out() * 2.0)); }
};

constexpr Var sqrt(Var x, Where where = Where::current()) { return detail::unary(Op::square_root, x, where); }

}  // namespace tutti::graph
