// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a * b.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::multiply> : detail::Elementwise<2> {
  static constexpr std::string_view name = "multiply", stablehlo = "multiply", onnx = "Mul";
  static constexpr Linearity linearity = Linearity::one;
  static constexpr bool commutes = true, folds = true;
  static constexpr double neutral = 1;

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a * b;
  }
  TUTTI_VECTOR_BODY((V a, V b) { return mul(a, b); })
  static constexpr std::uint64_t integer(std::uint64_t a, std::uint64_t b) { return a * b; }
  /// A double does not hold the products of 32-bit integers.
  static double reference(auto const& call, double a, double b) {
    return is_integer(call.dtype()) ? call.product(a, b) : a * b;
  }

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * n.in(1)), n.give(1, n.g() * n.in(0)); }
};

constexpr Var operator*(Operand a, Operand b) { return detail::arithmetic<Op::multiply>(a, b); }

}  // namespace tutti::graph
