// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// 1 / sqrt(a).

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::reciprocal_square_root> : detail::Elementwise<1> {
  static constexpr std::string_view name = "reciprocal_square_root", stablehlo = "rsqrt";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return Real(1) / std::sqrt(a);
  }
  TUTTI_VECTOR_BODY((V a) { return div(like(a, 1.0f), sqrt(a)); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * (pow(n.out(), 3) * -0.5)); }

  static auto onnx(auto const& e) { return e.map("Reciprocal", e.map("Sqrt", e.in())); }
};

constexpr Var rsqrt(Var x, Where where = Where::current()) {
  return detail::unary(Op::reciprocal_square_root, x, where);
}

}  // namespace tutti::graph
