// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reductions over any axes as a naive loop in double.

#include <tutti/tensor/shape.hpp>

#include "kernel/strides.hpp"
#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::test {

inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

struct ReduceOracle {
  std::vector<double> values;
  double magnitude = 0;  ///< largest sum of magnitudes behind one value
};

inline ReduceOracle reduced(Shape const& shape, Strides const& strides, unsigned axes, bool maximum, float const* x) {
  std::int64_t outputs = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!((axes >> axis) & 1u)) outputs *= shape[axis];
  ReduceOracle oracle{std::vector<double>(length(outputs), maximum ? minus_infinity : 0.0), 0};
  std::vector<double> magnitudes(length(outputs));
  std::int64_t index[Shape::max_rank] = {};
  for (std::int64_t count = shape.size(); count > 0; --count) {
    std::int64_t from = 0, to = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      from += index[axis] * strides[length(axis)];
      if (!((axes >> axis) & 1u)) to = to * shape[axis] + index[axis];
    }
    double& value = oracle.values[length(to)];
    if (maximum) value = std::isnan(value) || value > x[from] ? value : x[from];
    else value += x[from];
    magnitudes[length(to)] += std::abs(double{x[from]});
    oracle.magnitude = std::max(oracle.magnitude, magnitudes[length(to)]);
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
  return oracle;
}

}  // namespace tutti::test
