// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The sine.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::sine> : detail::Elementwise<1> {
  static constexpr std::string_view name = "sine", stablehlo = "sine", onnx = "Sin";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::sin(a);
  }
  TUTTI_VECTOR_BODY((V a) { return sin(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * cos(n.in(0))); }
};

constexpr Var sin(Var x, Where where = Where::current()) { return detail::unary(Op::sine, x, where); }

}  // namespace tutti::graph
