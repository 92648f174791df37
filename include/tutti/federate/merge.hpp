// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The contributions of a round become one outer gradient: each is looked at, then all are averaged.

#include <tutti/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::federate {

/// An outer gradient that has arrived: the parameters that a worker began from, minus those it came to.
struct Contribution {
  std::uint64_t lease = 0, worker = 0;
  std::int64_t round = 0;    ///< that it began from
  std::int64_t samples = 0;  ///< learned from
  std::int64_t steps = 0;
  double loss = 0;
  double seconds = 0;  ///< of its inner steps
  std::vector<float> gradient;
  double norm = 0;
};

/// The Euclidean norm, or nothing where a value is not finite.
inline std::optional<double> finite_norm(std::span<float const> values) noexcept {
  double sum = 0;
  for (float const value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  if (!std::isfinite(sum)) return std::nullopt;
  return std::sqrt(sum);
}

/// Of a contribution, for the square root of the steps that it took: as far as a walk without direction goes.
inline double length_of(Contribution const& one) noexcept {
  return one.norm / std::sqrt(static_cast<double>(std::max<std::int64_t>(one.steps, 1)));
}
/// The lower one of the two in the middle. 0 of none.
inline double median_length(std::span<Contribution const> all) {
  if (all.empty()) return 0;
  std::vector<double> lengths;
  for (Contribution const& one : all) lengths.push_back(length_of(one));
  auto const middle = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle;
}
/// Indices of contributions that are more than `limit` times as long as the median one; 0: no limit. Of fewer than
/// three nothing is said: either of two may be the one that is right, and what was usual in earlier rounds is no
/// measure for one that is short because its worker left, or long because it is the first after a warm-up.
inline std::vector<std::size_t> too_long(std::span<Contribution const> all, double limit) {
  std::vector<std::size_t> found;
  if (limit == 0 || all.size() < 3) return found;
  double const median = median_length(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (length_of(all[i]) > limit * median) found.push_back(i);
  return found;
}

/// How much a contribution counts: by its tokens, less for every round that it is late.
inline double weight_of(std::int64_t samples, std::int64_t sequence, std::int64_t late, double discount) noexcept {
  return static_cast<double>(samples) * static_cast<double>(sequence) * std::pow(discount, static_cast<double>(late));
}

/// Computes     `average[i]`: the mean of values i, by `weights`; with `trim` without the floor(trim * n) lowest and
///              highest of them.
/// Determinism  in the order given, in double: the same contributions give the same bits.
/// Errors       invalid_argument where no weight is above 0, or sizes differ.
inline void average(std::span<Contribution const> all, std::span<double const> weights, double trim,
                    std::span<float> average) {
  double total = 0;
  for (double const weight : weights) total += weight;
  bool fits = !all.empty() && all.size() == weights.size() && total > 0;
  for (Contribution const& one : all) fits = fits && one.gradient.size() == average.size();
  if (!fits)
    throw Error(ErrorKind::invalid_argument, "federate::average", "there are no contributions of one size to average");
  auto const cut = static_cast<std::size_t>(trim * static_cast<double>(all.size()));
  if (cut == 0) {
    for (std::size_t i = 0; i < average.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < all.size(); ++k) sum += weights[k] * static_cast<double>(all[k].gradient[i]);
      average[i] = static_cast<float>(sum / total);
    }
    return;
  }
  std::vector<std::pair<float, double>> values(all.size());
  for (std::size_t i = 0; i < average.size(); ++i) {
    for (std::size_t k = 0; k < all.size(); ++k) values[k] = {all[k].gradient[i], weights[k]};
    std::sort(values.begin(), values.end());
    double sum = 0, kept = 0;
    for (std::size_t k = cut; k < values.size() - cut; ++k)
      sum += values[k].second * static_cast<double>(values[k].first), kept += values[k].second;
    average[i] = kept > 0 ? static_cast<float>(sum / kept) : 0.0f;
  }
}

}  // namespace tutti::federate
