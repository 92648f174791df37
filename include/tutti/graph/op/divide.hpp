// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a / b; of integers toward zero, and by zero zero.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::divide> : detail::Elementwise<2> {
  static constexpr std::string_view name = "divide";
  static constexpr Linearity linearity = Linearity::first;
  static constexpr double neutral = 1;

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a / b;
  }
  TUTTI_VECTOR_BODY((V a, V b) { return div(a, b); })
  template <class Register>
  static constexpr Register integer(Register a, Register b) {
    if constexpr (std::is_signed_v<Register>)
      if (b == -1 && a == INT64_MIN) return 0;
    return b == 0 ? 0 : a / b;
  }
  static double reference(auto const& call, double a, double b) {
    return is_floating(call.dtype()) ? a / b : b == 0 ? 0 : std::trunc(a / b);
  }

  static constexpr void gradient(auto const& n) { n.give(0, n.g() / n.in(1)), n.give(1, -(n.g() / n.in(1) * n.out())); }

  /// StableHLO does not say what a division by zero is, nor the lowest number by -1: both are kept from it.
  static auto stablehlo(auto const& e) {
    auto const &a = e.in(0), &b = e.in(1);
    if (is_floating(e.dtype())) return e.map("divide", a, b);
    if (e.is_truth()) return e.map("and", a, b);
    auto const zero = e.number(0), one = e.number(1), by_zero = e.compare("EQ", b, zero);
    if (!e.is_signed()) return e.select(by_zero, zero, e.map("divide", a, e.select(by_zero, one, b)));
    auto const by_minus = e.compare("EQ", b, e.number(-1));
    auto const quotient = e.map("divide", a, e.select(e.map("or", by_zero, by_minus), one, b));
    auto negated = e.map("negate", a);
    if (e.dtype() == DType::int64) negated = e.select(e.compare("EQ", a, e.number(-0x1p63)), zero, negated);
    return e.select(by_zero, zero, e.select(by_minus, negated, quotient));
  }
  /// ONNX does not say what a division of integers by zero is: it is kept from it.
  static auto onnx(auto const& e) {
    auto const &a = e.in(0), &b = e.in(1);
    if (e.is_floating()) return e.map("Div", a, b);
    auto const zero = e.number(0), by_zero = e.test("Equal", b, zero);
    return e.where(by_zero, zero, e.map("Div", a, e.where(by_zero, e.number(1), b)));
  }
};

constexpr Var operator/(Operand a, Operand b) { return detail::arithmetic<Op::divide>(a, b); }

}  // namespace tutti::graph
