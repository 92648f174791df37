// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a - b.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::subtract> : detail::Elementwise<2> {
  static constexpr std::string_view name = "subtract";
  static constexpr Linearity linearity = Linearity::every;
  static constexpr bool wraps = true, folds = true;
  static constexpr double neutral = 0;

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a - b;
  }
  TUTTI_VECTOR_BODY((V a, V b) { return sub(a, b); })
  static constexpr std::uint64_t integer(std::uint64_t a, std::uint64_t b) { return a - b; }
  static constexpr void gradient(auto const& n) { n.give(0, n.g()), n.give(1, -n.g()); }

  static auto stablehlo(auto const& e) { return e.map(e.is_truth() ? "xor" : "subtract", e.in(0), e.in(1)); }
  static auto onnx(auto const& e) { return e.map("Sub", e.in(0), e.in(1)); }
};

constexpr Var operator-(Operand a, Operand b) { return detail::arithmetic<Op::subtract>(a, b); }

}  // namespace tutti::graph
