// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The natural logarithm.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::logarithm> : detail::Elementwise<1> {
  static constexpr std::string_view name = "logarithm", stablehlo = "log", onnx = "Log";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::log(a);
  }
  TUTTI_VECTOR_BODY((V a) { return log(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() / n.in(0)); }
};

constexpr Var log(Var x, Where where = Where::current()) { return detail::unary(Op::logarithm, x, where); }

}  // namespace tutti::graph
