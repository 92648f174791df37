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
#include <variant>
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
    if (!(scaling.fast > scaling.slow && scaling.slow > 0)) refuse("yarn's fast turns must be more than its slow ones");
    auto const pair_that_turns = [&](double times) {
      return static_cast<double>(rotated) *
             std::log(static_cast<double>(scaling.original_tokens) / (times * 2 * std::numbers::pi)) /
             (2 * std::log(base));
    };
    double const low = std::max(0.0, std::floor(pair_that_turns(scaling.fast))),
                 high = std::min(static_cast<double>(rotated - 1), std::ceil(pair_that_turns(scaling.slow)));
    for (std::size_t i = 0; i < result.frequencies.size(); ++i) {
      double const ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0),
                   stays = scaling.extrapolation * (1 - ramp);
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

/// What is to hold in the place of a file's rotations, by llama.cpp's rules. Zeros and an empty kind: the model's own.
struct RotationChange {
  double base = 0, scale = 0;  ///< of frequencies: a scale of 0.25 is a factor of 4
  std::string kind{};          ///< none, linear, yarn
  double extrapolation = -1;   ///< share of yarn's pairs that stay; 0: all are divided; negative: as the kind says
  double attention = 1;        ///< cosine and sine are multiplied by it
  double fast = 32, slow = 1;
  std::int64_t original_tokens = 0;

  friend bool operator==(RotationChange const&, RotationChange const&) = default;
};

/// Turns a model's positions by other rotations. Errors: configuration (positions are learned; those of rotation_of).
inline void change_rotation(StoredModel& model, RotationChange const& change) {
  if (change == RotationChange()) return;
  auto* const c = std::get_if<LlamaConfig>(&model.config);
  if (c == nullptr)
    throw Error(ErrorKind::configuration, "change_rotation",
                "the model has learned its positions, and rotates nothing");
  RotationScaling scaling = model.rotation.scaling;
  double const base = change.base > 0 ? change.base : c->rotary_base;
  if (!change.kind.empty()) scaling.kind = change.kind;
  if (change.scale > 0) scaling.factor = 1 / change.scale;
  if (change.kind == "none") scaling.factor = 1, scaling.factors.clear();
  else if (scaling.kind == "none" && scaling.factor != 1) scaling.kind = "linear";
  if (change.extrapolation > 0) scaling.kind = "yarn", scaling.extrapolation = change.extrapolation;
  if (change.extrapolation == 0 && scaling.kind == "yarn") scaling.kind = "linear";
  if (change.original_tokens > 0) scaling.original_tokens = change.original_tokens;
  if (scaling.original_tokens == 0) scaling.original_tokens = c->max_tokens;
  scaling.fast = change.fast, scaling.slow = change.slow;
  auto const rotated = 2 * static_cast<std::int64_t>(model.rotation.frequencies.size());
  model.rotation = rotation_of(rotated, c->head_size, base, scaling, c->max_tokens);
  model.rotation.magnitude *= change.attention;
  c->rotary_base = base;
}

}  // namespace tutti::nn
