// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// -1, 0 or 1; of NaN and zeros themselves.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::sign> : detail::Elementwise<1> {
  static constexpr std::string_view name = "sign";
  static constexpr Differentiability differentiability = Differentiability::none;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return a > 0 ? Real(1) : a < 0 ? Real(-1) : a;
  }
  TUTTI_VECTOR_BODY((V a) {
    V const zero = like(a, 0.0f);
    return select(less(zero, a), like(a, 1.0f), select(less(a, zero), like(a, -1.0f), a));
  })
  template <class Register>
  static constexpr Register integer(Register a) {
    return a > 0 ? Register(1) : a < 0 ? Register(-1) : a;
  }

  static auto stablehlo(auto const& e) {
    if (e.is_truth()) return e.in();
    return e.is_signed() ? e.map("sign", e.in()) : e.map("minimum", e.in(), e.number(1));
  }
  static auto onnx(auto const& e) { return e.map("Sign", e.in()); }
};

constexpr Var sign(Var x, Where where = Where::current()) { return detail::unary(Op::sign, x, where); }

}  // namespace tutti::graph
