// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Strides of random boxes.

#include <tutti/tensor/shape.hpp>

#include "kernel/support.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tutti::test {

using Strides = std::array<std::int64_t, Shape::max_rank>;

/// Strides that visit every element of a box once, with the axes in a random order and gaps between rows.
inline Strides random_strides(Random& random, Shape const& shape, bool row_major, bool gaps, std::int64_t& span) {
  std::vector<int> order(length(shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  if (!row_major)
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[length(random.below(static_cast<std::int64_t>(i)))]);
  Strides strides{};
  span = 1;
  for (std::size_t i = order.size(); i > 0; --i) {
    strides[length(order[i - 1])] = span;
    span *= std::max<std::int64_t>(1, shape[order[i - 1]]);
    if (gaps && random.below(3) == 0) span += random.below(4);
  }
  return strides;
}

}  // namespace tutti::test
