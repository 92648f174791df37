// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// |a|.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::abs> : detail::Elementwise<1> {
  static constexpr std::string_view name = "abs";
  static constexpr bool wraps = true;

  template <class Real>
  static constexpr Real scalar(Real a) {
    return std::abs(a);
  }
  TUTTI_VECTOR_BODY((V a) { return abs(a); })
  template <class Register>
  static constexpr Register integer(Register a) {
    return a < 0 ? static_cast<Register>(0 - static_cast<std::uint64_t>(a)) : a;
  }

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * sign(n.in(0))); }

  static auto stablehlo(auto const& e) { return e.is_signed() ? e.map("abs", e.in()) : e.in(); }
  static auto onnx(auto const& e) { return e.map("Abs", e.in()); }
};

constexpr Var abs(Var x, Where where = Where::current()) { return detail::unary(Op::abs, x, where); }

}  // namespace tutti::graph
