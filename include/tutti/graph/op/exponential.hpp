// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// e^a.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::exponential> : detail::Elementwise<1> {
  static constexpr std::string_view name = "exponential", stablehlo = "exponential", onnx = "Exp";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::exp(a);
  }
  TUTTI_VECTOR_BODY((V a) { return exp(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * n.out()); }
};

constexpr Var exp(Var x, Where where = Where::current()) { return detail::unary(Op::exponential, x, where); }

}  // namespace tutti::graph
