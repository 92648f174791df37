// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The frequencies of rotary embeddings, stretched for long texts in the ways that published models use.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/nn/stored_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace tutti::nn {

/// Of the first `rotated` elements of a head. Errors: configuration.
inline Rotation rotation_of(std::int64_t rotated, std::int64_t head_size, double base, RotationScaling const& scaling,
                            std::int64_t max_tokens) {
  auto const refuse = [](std::string const& why) { throw Error(ErrorKind::configuration, "rotation_of", why); };
  if (rotated < 2 || rotated % 2 != 0 || rotated > head_size)
    refuse(concat(rotated, " elements of a head of ", head_size, " are rotated; it must be an even number of them"));
  Rotation result;
  result.scaling = scaling;
  for (std::int64_t i = 0; i < rotated / 2; ++i)
    result.frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotated)));
  if (!scaling.factors.empty()) {
    if (scaling.factors.size() != result.frequencies.size())
      refuse(concat("there are ", scaling.factors.size(), " factors for ", result.frequencies.size(), " frequencies"));
    for (std::size_t i = 0; i < scaling.factors.size(); ++i) {
      if (!(scaling.factors[i] > 0)) refuse("a factor of the frequencies is not positive");
      result.frequencies[i] /= double{scaling.factors[i]};
    }
  }
  if (!(scaling.factor > 0)) refuse("the scaling factor of rotations is not positive");
  if (scaling.magnitude > 0) result.magnitude = scaling.magnitude;
  if (scaling.kind == "linear") {
    for (double& frequency : result.frequencies) frequency /= scaling.factor;
  } else if (scaling.kind == "yarn") {
    // Pairs that turn more than 32 times within the original length stay, those that turn less than once are stretched.
    auto const pair_that_turns = [&](double times) {
      return static_cast<double>(rotated) *
             std::log(static_cast<double>(scaling.original_tokens) / (times * 2 * std::numbers::pi)) /
             (2 * std::log(base));
    };
    double const low = std::max(0.0, std::floor(pair_that_turns(32))),
                 high = std::min(static_cast<double>(rotated - 1), std::ceil(pair_that_turns(1)));
    for (std::size_t i = 0; i < result.frequencies.size(); ++i) {
      double const stays = 1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
      result.frequencies[i] *= stays + (1 - stays) / scaling.factor;
    }
    result.magnitude *= 1 + 0.1 * std::log(scaling.factor);
  } else if (scaling.kind == "longrope") {
    double const stretch =
        static_cast<double>(max_tokens) / static_cast<double>(std::max<std::int64_t>(scaling.original_tokens, 1));
    if (!(scaling.magnitude > 0) && stretch > 1)
      result.magnitude = std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(scaling.original_tokens)));
  } else if (scaling.kind != "none") {
    refuse("rotations are scaled by '" + scaling.kind.substr(0, 40) + "', none of none, linear, yarn and longrope");
  }
  return result;
}

}  // namespace tutti::nn
