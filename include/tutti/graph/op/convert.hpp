// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// To the node's dtype. Numbers become integers toward zero and saturate, NaN becomes 0; integers become narrower ones
/// modulo 2^bits. Nonzero is true.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::convert> : detail::Elementwise<1> {
  static constexpr std::string_view name = "convert";
  static constexpr Linearity linearity = Linearity::any;

  static constexpr Type type(detail::Operands const& in) { return {in.draft.type.dtype, {}, in.shape(0)}; }

  /// Rounding happens where the result is stored.
  template <class Real>
  static constexpr Real scalar(Real a) {
    return a;
  }
  TUTTI_VECTOR_BODY((V a) { return a; })
  template <class Register>
  static constexpr Register integer(Register a) {
    return a;
  }
  static double reference(auto const& call, double a) { return call.converted(a); }

  static constexpr void gradient(auto const& n) { n.give(0, convert(n.g(), n.in(0).dtype())); }

  /// StableHLO does not say what becomes of numbers that the integers do not hold: these are kept from it.
  static auto stablehlo(auto const& e) {
    auto const& x = e.in();
    DType const to = e.dtype();
    if (to == DType::boolean && x.dtype != to) return e.compare("NE", x, e.number(0));
    if (!is_floating(x.dtype) || is_floating(to)) return e.convert(x, to);
    if (size_of(x.dtype) == 2) return e.saturated(e.convert(x, DType::float32), to);
    return e.saturated(x, to);
  }
  static auto onnx(auto const& e) { return e.cast(e.in(), e.dtype()); }
};

constexpr Var convert(Var x, DType dtype, Where where = Where::current()) {
  if (x.dtype(where) == dtype) return x;
  return detail::emit(detail::home(x, where), draft(Op::convert, {x.id}, {}, {}, {dtype, {}, x.shape()}), where);
}

}  // namespace tutti::graph
