// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A node and the values of its operands, as the interpreter's loops take them: walks over row-major elements, and the
/// arithmetic of integers and booleans in double.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/tensor/shape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace tutti::graph::naive {

/// Row-major elements of a tensor; booleans are 0 and 1.
using Values = std::vector<double>;
using Index = std::array<std::int64_t, Shape::max_rank>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// f(index, flat position) for every element in row-major order.
template <class F>
void for_each(Shape const& shape, F f) {
  Index index{};
  std::int64_t const size = shape.size();
  for (std::int64_t flat = 0; flat < size; ++flat) {
    f(index, flat);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++index[at(axis)] < shape[axis]) break;
      index[at(axis)] = 0;
    }
  }
}
inline std::size_t position(Shape const& shape, Index const& index) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape[axis] + index[at(axis)];
  return at(flat);
}

inline double converted(DType from, double x, DType to) {
  if (to == DType::boolean) return x != 0;
  if (is_floating(to)) return x;
  bool const is_signed = with_dtype(to, [](auto zero) { return std::is_signed_v<decltype(zero)>; });
  double const range = std::ldexp(1.0, 8 * static_cast<int>(size_of(to))), above = is_signed ? range / 2 : range;
  if (is_floating(from)) return std::isnan(x) ? 0 : std::clamp(std::trunc(x), above - range, above - 1);
  if (x >= above - range && x < above) return x;
  double const rest = x - std::floor(x / range) * range;
  return rest < above ? rest : rest - range;
}

/// A whole number modulo 2^64.
inline std::uint64_t word(double x) {
  double const rest = std::fmod(std::abs(x), 0x1p64);
  auto const bits = static_cast<std::uint64_t>(rest);
  return x < 0 ? 0 - bits : bits;
}

/// Of integers, modulo 2^bits: a double does not hold the products of 32-bit ones.
inline double product(double a, double b, DType dtype) {
  std::uint64_t const bits = word(a) * word(b);
  return with_dtype(dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>) return static_cast<double>(static_cast<decltype(zero)>(bits));
    else return 0.0;
  });
}

/// A node and the values of its operands.
struct Call {
  Graph const& graph;
  Id id;
  List<Values const*> operands;

  Values const& in(int i) const { return *operands[at(i)]; }
  Shape const& shape(int i) const { return graph.shape(graph.operand(id, i)); }
  Shape const& out() const { return graph.shape(id); }
  DType dtype() const { return graph.dtype(id); }
  int count() const { return static_cast<int>(operands.size()); }
  std::int64_t integer(int i = 0) const { return graph.integer(id, i); }
  double real(int i = 0) const { return graph.real(id, i); }
  double converted(double x) const { return naive::converted(graph.dtype(graph.operand(id, 0)), x, dtype()); }
  double product(double a, double b) const { return naive::product(a, b, dtype()); }
};

}  // namespace tutti::graph::naive
