// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Cross entropy in double, of logits and of a linear layer.

#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tutti::graph::naive {

/// Mean loss, scaled gradient of the logits, loss per row.
inline List<Values> losses(Call const& c, Values const& logits, Values const& targets, std::int64_t vocabulary,
                                  double ignored, double scale) {
  std::size_t const rows = targets.size(), width = at(vocabulary);
  Values gradient(rows * width), row_losses(rows);
  double total = 0, valid = 0;
  for (double target : targets) valid += target != ignored;
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] == ignored) continue;
    std::size_t const target = row_of(c, targets[r], vocabulary);
    double const* z = logits.data() + r * width;
    double top = z[0], sum = 0;
    for (std::size_t i = 0; i < width; ++i) top = std::max(top, z[i]);
    for (std::size_t i = 0; i < width; ++i) sum += std::exp(z[i] - top);
    row_losses[r] = top + std::log(sum) - z[target];
    total += row_losses[r];
    for (std::size_t i = 0; i < width; ++i)
      gradient[r * width + i] = scale * (std::exp(z[i] - top) / sum - double(i == target)) / valid;
  }
  return {{valid > 0 ? total / valid : 0}, gradient, row_losses};
}

inline List<Values> linear_cross_entropy(Call const& c) {
  std::size_t const width = at(c.shape(1)[1]), rows = c.in(2).size(), vocabulary = at(c.integer(1));
  Values const x = factors(c, c.in(0)), weight = factors(c, c.in(1));
  Values logits(rows * vocabulary);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t v = 0; v < vocabulary; ++v)
      for (std::size_t i = 0; i < width; ++i)
        logits[r * vocabulary + v] += x[r * width + i] * weight[v * width + i];
  List<Values> const loss =
      losses(c, logits, c.in(2), c.integer(1), static_cast<double>(c.integer(0)), c.real());
  Values const dlogits = factors(c, loss[1]);
  Values dx(c.in(0).size()), dweight(c.in(1).size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t v = 0; v < vocabulary; ++v)
      for (std::size_t i = 0; i < width; ++i) {
        dx[r * width + i] += dlogits[r * vocabulary + v] * weight[v * width + i];
        dweight[v * width + i] += dlogits[r * vocabulary + v] * x[r * width + i];
      }
  return {loss[0], dx, dweight, loss[2]};
}

}  // namespace tutti::graph::naive
