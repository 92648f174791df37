// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Constants of which elements differ: graphs have none, so they are written as counts and comparisons where they are
/// regular, else as an operation that holds the numbers.

#include <tutti/graph/custom_arguments.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/interpreter_kernels.hpp>
#include <tutti/graph/ops.hpp>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

namespace tutti::graph::stablehlo {

namespace detail {

inline Type literal_type(graph::detail::Operands const& in) { return in[0]; }
inline void no_literal_gradient(Back const&) {}
inline std::vector<double> literal_reference(naive::Call const& call) {
  auto const numbers = call.graph.reals(call.id);
  return {numbers.begin(), numbers.end()};
}
inline void run_literal(exec::Context&, CustomArguments const& args) {
  for (std::size_t i = 0; i < args.reals.size(); ++i)
    generic::store_number(args.result.dtype, args.result.data, static_cast<std::int64_t>(i), args.reals[i]);
}
/// Of an operand that says type and shape, with the numbers as reals.
inline constexpr CustomOperation literal_operation{
    "literal", literal_type, false, no_literal_gradient, literal_reference, run_literal, 0};

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// first + the sum over axes of index times step, of whole numbers that the type holds.
inline std::optional<Var> as_counts(Builder& b, List<double> const& numbers, DType dtype, Shape const& shape) {
  if (dtype == DType::boolean || size_of(dtype) < 4) return std::nullopt;
  auto const strides = shape.row_major_strides();
  List<double> steps;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    auto const next = static_cast<std::size_t>(strides[static_cast<std::size_t>(axis)]);
    steps.push_back(shape[axis] > 1 ? numbers[next] - numbers[0] : 0);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    double expected = numbers[0];
    auto rest = static_cast<std::int64_t>(i);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      std::int64_t const stride = strides[static_cast<std::size_t>(axis)];
      expected += static_cast<double>(rest / stride) * steps[static_cast<std::size_t>(axis)];
      rest %= stride;
    }
    if (!(std::abs(expected) < 0x1p24) || expected != numbers[i] || expected != std::floor(expected))
      return std::nullopt;
  }
  Var sum = constant(b, numbers[0], shape, dtype);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (double const step = steps[static_cast<std::size_t>(axis)]; step != 0)
      sum = Operand(sum) + Operand(Operand(iota(b, shape, axis, dtype)) * step);
  return sum;
}

/// One number where column - row is at most an offset, in the last two axes, and another beyond.
inline std::optional<Var> as_triangle(Builder& b, List<double> const& numbers, DType dtype, Shape const& shape) {
  if (shape.rank() < 2) return std::nullopt;
  std::int64_t const rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  auto const at = [&](std::int64_t i) { return numbers[static_cast<std::size_t>(i)]; };
  double const low = at((rows - 1) * columns), high = at(columns - 1);
  std::int64_t offset = -1;
  for (std::int64_t j = 0; j < columns && same(at(j), low); ++j) offset = j;
  for (std::int64_t i = 1; offset < 0 && i < rows && !same(at((i - 1) * columns), low); ++i) offset = -i;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(numbers.size()); ++i)
    if (!same(at(i), i % columns - i / columns % rows <= offset ? low : high)) return std::nullopt;
  Var const row = iota(b, shape, shape.rank() - 2), column = iota(b, shape, shape.rank() - 1);
  Var const below = less_equal(column, Operand(row) + Operand(static_cast<double>(offset)));
  return select(below, constant(b, low, shape, dtype), constant(b, high, shape, dtype));
}

}  // namespace detail

/// An integer of 64 bits, of halves that doubles hold.
inline Var wide_constant(Builder& builder, std::uint64_t number, DType dtype, Shape const& shape) {
  double const low = static_cast<double>(number & 0xffffffffu);
  double const high = dtype == DType::int64 ? static_cast<double>(static_cast<std::int64_t>(number) >> 32)
                                            : static_cast<double>(number >> 32);
  Operand const shifted(Operand(constant(builder, high, shape, dtype)) * 0x1p32);
  return shifted + Operand(constant(builder, low, shape, dtype));
}

/// A tensor with these elements, in row-major order; one number stands for all.
/// Requires  as many numbers as elements, or one
inline Var literal(Builder& builder, List<double> const& numbers, DType dtype, Shape const& shape) {
  bool equal = true;
  for (double const x : numbers)
    equal = equal && detail::same(x, numbers[0]) && std::signbit(x) == std::signbit(numbers[0]);
  if (equal) return constant(builder, numbers.empty() ? 0 : numbers[0], shape, dtype);
  if (auto const counts = detail::as_counts(builder, numbers, dtype, shape)) return *counts;
  if (auto const triangle = detail::as_triangle(builder, numbers, dtype, shape)) return *triangle;
  Draft wanted = draft(Op::custom, {constant(builder, 0, shape, dtype).id}, {}, numbers);
  wanted.custom = &detail::literal_operation;
  return graph::detail::emit(builder, std::move(wanted), Where::current());
}

}  // namespace tutti::graph::stablehlo
