// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layer and root-mean-square normalisation as naive loops in double.

#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti::test {

struct NormOracle {
  std::vector<double> y, mean, rstd;
};
struct NormGradientOracle {
  std::vector<float> mean, rstd;  ///< the statistics that the gradient is given
  std::vector<double> dx, dgamma, dbeta;
  double largest = 1;  ///< of rstd
};

/// The mean of no channel counts: root-mean-square normalisation has none.
inline NormOracle norm_oracle(std::vector<float> const& x, std::vector<float> const& gamma,
                              std::vector<float> const* beta, std::int64_t rows, std::int64_t n, double eps) {
  NormOracle oracle;
  for (std::int64_t row = 0; row < rows; ++row) {
    float const* const from = x.data() + row * n;
    double mean = 0, squares = 0;
    if (beta != nullptr)
      for (std::int64_t i = 0; i < n; ++i) mean += double{from[i]} / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) squares += (from[i] - mean) * (from[i] - mean);
    double const rstd = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    oracle.mean.push_back(mean);
    oracle.rstd.push_back(rstd);
    for (std::int64_t i = 0; i < n; ++i)
      oracle.y.push_back((from[i] - mean) * rstd * gamma[length(i)] + (beta == nullptr ? 0 : (*beta)[length(i)]));
  }
  return oracle;
}
inline NormOracle layer_norm_oracle(std::vector<float> const& x, std::vector<float> const& gamma,
                                    std::vector<float> const& beta, std::int64_t rows, std::int64_t n, double eps) {
  return norm_oracle(x, gamma, &beta, rows, n, eps);
}
inline NormOracle rms_norm_oracle(std::vector<float> const& x, std::vector<float> const& weight, std::int64_t rows,
                                  std::int64_t n, double eps) {
  return norm_oracle(x, weight, nullptr, rows, n, eps);
}

inline NormGradientOracle norm_gradient_oracle(std::vector<float> const& x, std::vector<float> const& dy,
                                               std::vector<float> const& gamma, bool centred, std::int64_t rows,
                                               std::int64_t n, double eps) {
  NormOracle const forward =
      centred ? layer_norm_oracle(x, gamma, gamma, rows, n, eps) : rms_norm_oracle(x, gamma, rows, n, eps);
  NormGradientOracle oracle;
  oracle.dgamma.resize(length(n));
  oracle.dbeta.resize(length(n));
  for (std::int64_t row = 0; row < rows; ++row) {
    oracle.mean.push_back(static_cast<float>(forward.mean[length(row)]));
    oracle.rstd.push_back(static_cast<float>(forward.rstd[length(row)]));
    double const m = double{oracle.mean.back()}, r = double{oracle.rstd.back()};
    oracle.largest = std::max(oracle.largest, r);
    double sum_h = 0, sum_p = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double const hat = (x[length(row * n + i)] - m) * r, g = double{dy[length(row * n + i)]};
      oracle.dgamma[length(i)] += g * hat;
      oracle.dbeta[length(i)] += g;
      sum_h += centred ? g * gamma[length(i)] : 0;
      sum_p += g * gamma[length(i)] * hat;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      double const hat = (x[length(row * n + i)] - m) * r;
      oracle.dx.push_back(
          r * (double{dy[length(row * n + i)]} * gamma[length(i)] - (sum_h + hat * sum_p) / static_cast<double>(n)));
    }
  }
  return oracle;
}
inline NormGradientOracle layer_norm_gradient_oracle(std::vector<float> const& x, std::vector<float> const& dy,
                                                     std::vector<float> const& gamma, std::int64_t rows,
                                                     std::int64_t n, double eps) {
  return norm_gradient_oracle(x, dy, gamma, true, rows, n, eps);
}
inline NormGradientOracle rms_norm_gradient_oracle(std::vector<float> const& x, std::vector<float> const& dy,
                                                   std::vector<float> const& weight, std::int64_t rows,
                                                   std::int64_t n, double eps) {
  return norm_gradient_oracle(x, dy, weight, false, rows, n, eps);
}

}  // namespace tutti::test
