// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The error function.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::erf> : detail::Elementwise<1> {
  static constexpr std::string_view name = "erf", stablehlo = "chlo.erf", onnx = "Erf";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::erf(a);
  }
  TUTTI_VECTOR_BODY((V a) { return erf(a); })

  static constexpr void gradient(auto const& n) {
    n.give(0, n.g() * (exp(-(n.in(0) * n.in(0))) * 1.1283791670955126));  // 2 / sqrt(pi)
  }
};

constexpr Var erf(Var x, Where where = Where::current()) { return detail::unary(Op::erf, x, where); }

}  // namespace tutti::graph
