// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// 1 / (1 + e^-a).

#include <tutti/graph/op/elementwise.hpp>
#include <tutti/kernel/activation.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::logistic> : detail::Elementwise<1> {
  static constexpr std::string_view name = "logistic", stablehlo = "logistic", onnx = "Sigmoid";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return kernel::Sigmoid<Real>(a).value;
  }
  static double precise(double a) { return 1 / (1 + std::exp(-a)); }
  TUTTI_VECTOR_BODY((V a) { return logistic(a); })

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * (n.out() * (1.0 - n.out()))); }
};

constexpr Var logistic(Var x, Where where = Where::current()) { return detail::unary(Op::logistic, x, where); }

}  // namespace tutti::graph
