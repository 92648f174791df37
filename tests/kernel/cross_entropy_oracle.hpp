// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Softmax cross-entropy as a naive loop in double.

#include "kernel/support.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti::test {

struct LossOracle {
  double loss = 0;
  std::vector<double> row_losses, dlogits;
};

/// z has `vocabulary` columns.
inline LossOracle loss_oracle(std::vector<double> const& z, std::vector<std::int32_t> const& targets,
                              std::int64_t vocabulary, std::int32_t ignored, double scale) {
  LossOracle oracle;
  double valid = 0;
  for (std::int32_t target : targets) valid += target != ignored;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    double const* const logits = z.data() + row * length(vocabulary);
    bool const counts = targets[row] != ignored;
    double largest = -1e300, total = 0;
    for (std::int64_t j = 0; j < vocabulary; ++j) largest = std::max(largest, logits[j]);
    for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp(logits[j] - largest);
    oracle.row_losses.push_back(counts ? std::log(total) + largest - logits[targets[row]] : 0);
    oracle.loss += oracle.row_losses.back() / std::max(valid, 1.0);
    for (std::int64_t j = 0; j < vocabulary; ++j)
      oracle.dlogits.push_back(
          counts ? scale * (std::exp(logits[j] - largest) / total - (j == targets[row] ? 1 : 0)) / valid : 0);
  }
  return oracle;
}

inline std::vector<std::int32_t> random_targets(Random& random, std::int64_t rows, std::int64_t vocabulary,
                                         std::int32_t ignored, int ignored_in_four) {
  std::vector<std::int32_t> targets(length(rows));
  for (auto& target : targets)
    target = random.below(4) < ignored_in_four ? ignored : static_cast<std::int32_t>(random.below(vocabulary));
  return targets;
}

}  // namespace tutti::test
