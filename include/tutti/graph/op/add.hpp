// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a + b.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::add> : detail::Elementwise<2> {
  static constexpr std::string_view name = "add", stablehlo = "add", onnx = "Add";
  static constexpr Linearity linearity = Linearity::every;
  static constexpr bool wraps = true, commutes = true, folds = true;
  static constexpr double neutral = 0;

  template <class Real>
  static constexpr Real scalar(Real a, Real b) {
    return a + b;
  }
  TUTTI_VECTOR_BODY((V a, V b) { return add(a, b); })
  static constexpr std::uint64_t integer(std::uint64_t a, std::uint64_t b) { return a + b; }
  static constexpr void gradient(auto const& n) { n.give(0, n.g()), n.give(1, n.g()); }
};

constexpr Var operator+(Operand a, Operand b) { return detail::arithmetic<Op::add>(a, b); }

}  // namespace tutti::graph
