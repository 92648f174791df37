// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a config.json says that a LLaMA's rotations are stretched for long texts.

#include <tutti/infer/model_json.hpp>
#include <tutti/nn/llama_config.hpp>
#include <tutti/nn/rotation.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace tutti::infer::detail {

/// Long waves are stretched by the factor, short ones stay, and between them the stretching grows (LLaMA 3.1).
inline std::vector<float> llama3_factors(nn::LlamaConfig const& c, ModelJson const& s,
                                         nn::RotationScaling const& scaling) {
  double const low = s.number_or("low_freq_factor", 1), high = s.number_or("high_freq_factor", 4);
  auto const original = static_cast<double>(scaling.original_tokens);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < c.head_size / 2; ++i) {
    double const wave =
        2 * std::numbers::pi *
        std::pow(c.rotary_base, 2.0 * static_cast<double>(i) / static_cast<double>(c.head_size));
    double factor = 1;
    if (wave > original / low) {
      factor = scaling.factor;
    } else if (wave >= original / high) {
      double const smooth = (original / wave - low) / (high - low);
      factor = 1 / ((1 - smooth) / scaling.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

/// `rope_scaling` beside `rope_theta`, or both in `rope_parameters`, as later files have them.
/// Sets the base of `c`. `refuse(why)` does not return.
template <class Refuse>
nn::RotationScaling rotation_of_hugging_face(ModelJson const& config, nn::LlamaConfig& c, Refuse const& refuse) {
  ModelJson const all = config.object("rope_parameters");
  ModelJson const s = all.has("rope_theta") ? all : config.object("rope_scaling");
  c.rotary_base = all.number_or("rope_theta", config.number_or("rope_theta", 10000.0));
  std::string const kind = s.text_or("rope_type", s.text_or("type", "default"));
  nn::RotationScaling scaling;
  scaling.original_tokens = s.count_or("original_max_position_embeddings",
                                       config.count_or("original_max_position_embeddings", c.max_tokens));
  scaling.factor = s.number_or("factor", 1.0);
  if (kind == "default") {
    scaling.factor = 1;
  } else if (kind == "linear") {
    scaling.kind = kind;
  } else if (kind == "yarn") {
    scaling.kind = kind;
    if (s.number_or("beta_fast", 32) != 32 || s.number_or("beta_slow", 1) != 1 || s.has("mscale"))
      refuse("its yarn scaling has parameters of its own");
    if (s.has("attention_factor"))
      scaling.magnitude = s.number_or("attention_factor", 1) / (1 + 0.1 * std::log(scaling.factor));
  } else if (kind == "llama3") {
    scaling.factors = llama3_factors(c, s, scaling);
    scaling.factor = 1;
  } else if (kind == "longrope" || kind == "su") {
    scaling.kind = "longrope";
    for (double const factor : s.numbers("long_factor")) scaling.long_factors.push_back(static_cast<float>(factor));
    for (double const factor : s.numbers("short_factor")) scaling.short_factors.push_back(static_cast<float>(factor));
    scaling.factors = c.max_tokens > scaling.original_tokens ? scaling.long_factors : scaling.short_factors;
    scaling.magnitude = s.number_or("attention_factor", 0);
  } else {
    refuse("its rotations are scaled by '" + kind.substr(0, 40) + "'");
  }
  return scaling;
}

}  // namespace tutti::infer::detail
