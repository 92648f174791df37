// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// -a.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::negate> : detail::Elementwise<1> {
  static constexpr std::string_view name = "negate";
  static constexpr Linearity linearity = Linearity::any;
  static constexpr bool wraps = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return -a;
  }
  TUTTI_VECTOR_BODY((V a) { return neg(a); })
  static constexpr std::uint64_t integer(std::uint64_t a) { return 0 - a; }

  static constexpr void gradient(auto const& n) { n.give(0, -n.g()); }

  static auto stablehlo(auto const& e) {
    if (e.is_truth()) return e.in();
    return e.is_signed() ? e.map("negate", e.in()) : e.map("subtract", e.number(0), e.in());
  }
  static auto onnx(auto const& e) {
    return e.is_signed() ? e.map("Neg", e.in()) : e.map("Sub", e.number(0), e.in());
  }
};

constexpr Var operator-(Operand a) {
  detail::home(a.var, a.where);
  if (auto const value = detail::constant_value(a.var); value && is_floating(a.var.dtype(a.where)))
    return full_like(a.var, -*value, a.where);
  return detail::unary(Op::negate, a.var, a.where);
}

}  // namespace tutti::graph
