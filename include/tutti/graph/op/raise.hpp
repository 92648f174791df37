// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a^b of two tensors; numbers as exponents: power.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::raise> : detail::Elementwise<2> {
  static constexpr std::string_view name = "raise", stablehlo = "power", onnx = "Pow";
  static constexpr bool floating = true;

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return static_cast<Real>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }

  /// Of b at a = 0, where a^b is 0 for every b near by, 0.
  static constexpr void gradient(auto const& n) {
    auto const a = n.in(0), b = n.in(1);
    if (n.wants(0)) n.give(0, n.g() * b * pow(a, b - 1.0));
    if (n.wants(1)) n.give(1, n.g() * n.out() * log(select(equal(a, 0.0), 1.0, a)));
  }
};

constexpr Var pow(Operand a, Operand b) { return detail::binary(Op::raise, a, b); }

}  // namespace tutti::graph
