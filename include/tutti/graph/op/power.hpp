// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// a^exponent; the exponent is a number.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::power> : detail::Elementwise<1> {
  static constexpr std::string_view name = "power";
  static constexpr bool floating = true, attributed = true;

  /// Small whole exponents as products; the rest in double.
  template <class Real>
  static constexpr Real scalar(double exponent, Real a) {
    if (exponent == 2) return a * a;
    if (exponent == 3) return a * a * a;
    if (exponent == 1) return a;
    if (exponent == -1) return Real(1) / a;
    return static_cast<Real>(std::pow(static_cast<double>(a), exponent));
  }
  static double precise(double exponent, double a) { return std::pow(a, exponent); }

  struct Square : detail::Elementwise<1> { TUTTI_VECTOR_BODY((V a) { return mul(a, a); }) };
  struct Cube : detail::Elementwise<1> { TUTTI_VECTOR_BODY((V a) { return mul(mul(a, a), a); }) };
  struct Same : detail::Elementwise<1> { TUTTI_VECTOR_BODY((V a) { return a; }) };
  struct Reciprocal : detail::Elementwise<1> { TUTTI_VECTOR_BODY((V a) { return div(like(a, 1.0f), a); }) };
  template <class F>
  static bool with_variant(double exponent, F&& f) {
    if (exponent == 2) return f.template operator()<Square>(), true;
    if (exponent == 3) return f.template operator()<Cube>(), true;
    if (exponent == 1) return f.template operator()<Same>(), true;
    if (exponent == -1) return f.template operator()<Reciprocal>(), true;
    return false;
  }

  static constexpr void gradient(auto const& n) { n.give(0, n.g() * (pow(n.in(0), n.real() - 1) * n.real())); }

  static auto stablehlo(auto const& e) {
    auto const& x = e.in();
    if (e.real() == 2) return e.map("multiply", x, x);
    if (e.real() == 3) return e.map("multiply", e.map("multiply", x, x), x);
    if (e.real() == -1) return e.map("divide", e.number(1), x);
    return e.real() == 1 ? x : e.map("power", x, e.number(e.real()));
  }
  static auto onnx(auto const& e) {
    auto const& x = e.in();
    return e.real() == 2 ? e.map("Mul", x, x) : e.map("Pow", x, e.number(e.real()));
  }
};

constexpr Var pow(Var x, double exponent, Where where = Where::current()) {
  if (exponent == 1) return x;
  return detail::unary(Op::power, x, where, {exponent});
}

}  // namespace tutti::graph
