// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// StableHLO's functions of elements as those of graphs, and what numbers known beforehand become by them.

#include <tutti/graph/stablehlo/import_values.hpp>

#include <cmath>
#include <limits>

namespace tutti::graph::stablehlo {

/// LT, of a comparison.
inline std::string_view direction_of(Scope const& scope) {
  text::Operation const& operation = scope.operation();
  if (!operation.words.empty()) return operation.words[0];
  if (auto const* found = operation.find("comparison_direction")) {
    std::string_view const said = found->string;
    return said.substr(said.rfind(' ') + 1);
  }
  scope.refuse("does not say what it compares for", ErrorKind::format);
}

namespace detail {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Of one, two or three whole numbers; NaN where it is not known here.
inline double folded(std::string_view name, std::string_view direction, DType dtype, double a, double b, double c) {
  bool const truth = dtype == DType::boolean;
  if (name == "compare")
    return direction == "LT"   ? a < b
           : direction == "LE" ? a <= b
           : direction == "GT" ? a > b
           : direction == "GE" ? a >= b
           : direction == "EQ" ? a == b
           : direction == "NE" ? a != b
                               : unknown;
  if (name == "select") return a != 0 ? b : c;
  if (name == "maximum" || (name == "or" && truth)) return a < b ? b : a;
  if (name == "minimum" || (name == "and" && truth)) return a < b ? a : b;
  if (name == "xor" && truth) return a != b;
  if (name == "not" && truth) return a == 0;
  if (truth) return unknown;
  if (name == "add") return a + b;
  if (name == "subtract") return a - b;
  if (name == "multiply") return a * b;
  if (name == "divide") return b == 0 ? unknown : std::trunc(a / b);
  if (name == "remainder") return b == 0 ? unknown : std::fmod(a, b);
  if (name == "negate") return -a;
  if (name == "abs") return std::abs(a);
  if (name == "sign") return a < 0 ? -1 : a > 0;
  if (name == "clamp") return b < a ? a : c < b ? c : b;
  return unknown;
}

}  // namespace detail

/// The result where operands are known and it is a whole number.
inline std::optional<Item> fold(Scope const& scope, std::string_view name, Items const& in,
                                text::TensorType const& type) {
  if (in.empty() || in.size() > 3 || is_floating(type.dtype)) return std::nullopt;
  int loop = 0;
  std::size_t count = 1;
  double fixed[3] = {0, 0, 0};
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (auto const number = in[i].constant()) {
      fixed[i] = *number;
      continue;
    }
    if (!in[i].known() || (loop != 0 && loop != in[i].loop)) return std::nullopt;
    loop = in[i].loop;
    count = in[i].numbers->size();
  }
  std::string_view const direction = name == "compare" ? direction_of(scope) : std::string_view();
  List<double> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    auto const at = [&](std::size_t k) { return k < in.size() && in[k].loop != 0 ? (*in[k].numbers)[i] : fixed[k]; };
    double x = name == "convert" ? (type.dtype == DType::boolean ? at(0) != 0 : std::trunc(at(0)))
                                 : detail::folded(name, direction, type.dtype, at(0), at(1), at(2));
    if (!(std::abs(x) <= 0x1p53) || !holds(type.dtype, x)) return std::nullopt;
    numbers.push_back(x + 0.0);
  }
  return known_item(type, std::move(numbers), loop);
}

namespace detail {

/// log(1 + x), to all digits where x is small.
inline Var log_plus_one(Var x) {
  Var const u = Operand(x) + 1.0, d = Operand(u) - 1.0, none_left = equal(d, 0.0);
  Var const ratio = Operand(x) / Operand(select(none_left, 1.0, d));
  return select(none_left, x, Operand(log(u)) * Operand(ratio));
}
/// exp(x) - 1, likewise.
inline Var exponential_minus_one(Var x) {
  Var const small = less(abs(x), 1.0), t = tanh(Operand(select(small, x, 0.0)) * 0.5);
  Var const near = Operand(Operand(t) * 2.0) / Operand(Operand(1.0) - Operand(t));
  return select(small, near, Operand(exp(x)) - 1.0);
}
inline Var truncated(Var x) { return select(less(x, 0.0), ceil(x), floor(x)); }
inline Var rounded_to_even(Var x) {
  Var const low = floor(x), rest = Operand(x) - Operand(low);
  Var const even = Operand(floor(Operand(Operand(low) * 0.5) + 0.5)) * 2.0;
  return select(less(rest, 0.5), low, select(less(0.5, rest), Operand(low) + 1.0, even));
}
inline Var rounded_away(Var x) {
  return Operand(sign(x)) * Operand(floor(Operand(abs(x)) + 0.5));
}

inline std::optional<Var> unary_function(std::string_view name, Var x) {
  bool const truth = x.dtype() == DType::boolean;
  if (name == "negate") return -Operand(x);
  if (name == "exponential") return exp(x);
  if (name == "log") return log(x);
  if (name == "tanh") return tanh(x);
  if (name == "logistic") return logistic(x);
  if (name == "sine") return sin(x);
  if (name == "cosine") return cos(x);
  if (name == "tan") return Operand(sin(x)) / Operand(cos(x));
  if (name == "sqrt") return sqrt(x);
  if (name == "rsqrt") return rsqrt(x);
  if (name == "cbrt") return Operand(sign(x)) * Operand(pow(abs(x), 1.0 / 3));
  if (name == "abs") return abs(x);
  if (name == "sign") return sign(x);
  if (name == "floor") return floor(x);
  if (name == "ceil") return ceil(x);
  if (name == "not" && truth) return !Operand(x);
  if (name == "log_plus_one") return log_plus_one(x);
  if (name == "exponential_minus_one") return exponential_minus_one(x);
  if (name == "round_nearest_even") return rounded_to_even(x);
  if (name == "round_nearest_afz") return rounded_away(x);
  if (name == "is_finite") return less(abs(x), std::numeric_limits<double>::infinity());
  if (name == "chlo.sinh") return Operand(Operand(exp(x)) - Operand(exp(-Operand(x)))) * 0.5;
  if (name == "chlo.cosh") return Operand(Operand(exp(x)) + Operand(exp(-Operand(x)))) * 0.5;
  if (name == "chlo.square") return Operand(x) * Operand(x);
  if (name == "chlo.erf") return erf(x);
  if (name == "chlo.erfc") return Operand(1.0) - Operand(erf(x));
  return std::nullopt;
}
inline std::optional<Var> binary_function(std::string_view name, Var x, Var y) {
  bool const truth = x.dtype() == DType::boolean, real = is_floating(x.dtype());
  Operand const a(x), b(y);
  if (name == "and" && truth) return x && y;
  if (name == "or" && truth) return x || y;
  if (name == "xor" && truth) return not_equal(a, b);
  if (truth && (name == "add" || name == "maximum")) return x || y;
  if (truth && (name == "multiply" || name == "minimum")) return x && y;
  if (truth) return std::nullopt;
  if (name == "add") return a + b;
  if (name == "subtract") return a - b;
  if (name == "multiply") return a * b;
  if (name == "divide") return a / b;
  if (name == "maximum") return maximum(a, b);
  if (name == "minimum") return minimum(a, b);
  if (name == "power" && real) {
    if (auto const exponent = graph::detail::constant_value(y)) return pow(x, *exponent);
    return pow(a, b);
  }
  if (name == "remainder" && real) return a - Operand(Operand(truncated(a / b)) * b);
  if (name == "remainder") return a - Operand(Operand(a / b) * b);
  return std::nullopt;
}
inline std::optional<Var> comparison(std::string_view direction, Operand a, Operand b) {
  if (direction == "LT") return less(a, b);
  if (direction == "LE") return less_equal(a, b);
  if (direction == "GT") return greater(a, b);
  if (direction == "GE") return greater_equal(a, b);
  if (direction == "EQ") return equal(a, b);
  if (direction == "NE") return not_equal(a, b);
  return std::nullopt;
}

}  // namespace detail

/// The function of this name, without `stablehlo.`; nothing where it is none, or not of these operands.
inline std::optional<Var> function(Scope& scope, std::string_view name, Items const& in, DType dtype) {
  if (name == "compare") {
    text::Operation const& op = scope.operation();
    if (op.words.size() > 1 && op.words[1] == "TOTALORDER") return std::nullopt;
    return detail::comparison(direction_of(scope), scope.in(in, 0), scope.in(in, 1));
  }
  if (name == "select" && in.size() == 3) return select(scope.in(in, 0), scope.in(in, 1), scope.in(in, 2));
  if (name == "clamp" && in.size() == 3) return minimum(maximum(scope.in(in, 1), scope.in(in, 0)), scope.in(in, 2));
  if (name == "convert" && in.size() == 1) {
    if (auto const number = in[0].constant(); number && (!is_floating(in[0].type.dtype)))
      if (holds(dtype, *number)) return constant(scope.builder(), *number, in[0].type.shape, dtype);
    return graph::convert(scope.in(in, 0), dtype);
  }
  if (in.size() == 1) return detail::unary_function(name, scope.in(in, 0));
  if (in.size() == 2) return detail::binary_function(name, scope.in(in, 0), scope.in(in, 1));
  return std::nullopt;
}

}  // namespace tutti::graph::stablehlo
