// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From logits to a token: temperature, top-k, top-p, in this order.

#include <tutti/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::infer {

struct SamplerOptions {
  double temperature = 1.0;  ///< 0: always the most likely token (the lowest id among equals)
  std::int64_t top_k = 0;    ///< keep the k most likely; 0 keeps all
  double top_p = 1.0;  ///< then keep the smallest set of the most likely whose mass reaches p (Holtzman et al. 2020)
  std::uint64_t seed = 1337;
};

/// Draws are a function of the seed and the number of draws before: the same seed gives the same text.
class Sampler {
 public:
  /// Errors: configuration, naming the option and its range.
  explicit Sampler(SamplerOptions options) : options_(options), state_(options.seed) {
    auto const refuse = [](std::string const& what) { throw Error(ErrorKind::configuration, "Sampler", what); };
    if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
      refuse("temperature " + std::to_string(options.temperature) + " must be zero or more");
    if (options.top_k < 0) refuse("top-k " + std::to_string(options.top_k) + " must be zero or more");
    if (!(options.top_p > 0 && options.top_p <= 1))
      refuse("top-p " + std::to_string(options.top_p) + " must be in (0, 1]");
  }

  /// Errors: invalid_argument, when there are no logits or none is finite.
  std::int32_t operator()(std::span<float const> logits) {
    order_.clear();
    for (std::size_t id = 0; id < logits.size(); ++id)
      if (std::isfinite(logits[id])) order_.push_back(static_cast<std::int32_t>(id));
    if (order_.empty())
      throw Error(ErrorKind::invalid_argument, "Sampler",
                  "none of the " + std::to_string(logits.size()) + " logits is finite");
    auto const more_likely = [&](std::int32_t a, std::int32_t b) {
      float const x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    if (options_.temperature == 0) return *std::min_element(order_.begin(), order_.end(), more_likely);

    auto const k = static_cast<std::size_t>(options_.top_k);
    bool const cut = k != 0 && k < order_.size();
    if (cut) {
      std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(k), order_.end(), more_likely);
      order_.resize(k);
    }
    if (options_.top_p < 1) std::sort(order_.begin(), order_.end(), more_likely);
    else std::sort(order_.begin(), order_.end());

    float highest = -INFINITY;
    for (std::int32_t id : order_) highest = std::max(highest, logits[static_cast<std::size_t>(id)]);
    weights_.clear();
    double mass = 0;
    for (std::int32_t id : order_) {
      weights_.push_back(
          std::exp((double(logits[static_cast<std::size_t>(id)]) - double(highest)) / options_.temperature));
      mass += weights_.back();
    }
    if (options_.top_p < 1) {
      double kept = 0;
      std::size_t count = 0;
      while (count < weights_.size() && kept < options_.top_p * mass) kept += weights_[count++];
      order_.resize(count);
      mass = kept;
    }
    double coin = uniform() * mass;
    for (std::size_t i = 0; i + 1 < order_.size(); ++i) {
      coin -= weights_[i];
      if (coin < 0) return order_[i];
    }
    return order_.back();
  }

 private:
  /// SplitMix64 (Steele, Lea, Flood 2014), upper 53 bits: [0, 1).
  double uniform() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return double((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
  }

  SamplerOptions options_;
  std::uint64_t state_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace tutti::infer
