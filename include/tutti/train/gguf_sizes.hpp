// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sizes of a model as keys of a GGUF file, and what stretches its rotations.

#include <tutti/core/checked.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/train/model_source.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train::detail {

/// Numbers by which pairs are divided, by the names of their tensors.
using GgufFactors = std::vector<std::pair<std::string, std::vector<float>>>;

/// What stretches rotations: keys of its kind, with both lists of longrope as tensors; else one list, which readers
/// know of architecture llama alone. Errors: configuration.
inline void add_scaling(io::GgufMetadata& metadata, ModelSource const& source, std::string const& a,
                        GgufFactors& factors) {
  nn::LlamaConfig const& c = source.llama_config();
  nn::Rotation const& rotation = source.model.rotation;
  nn::RotationScaling const& scaling = rotation.scaling;
  auto const refuse = [&] {
    throw Error(ErrorKind::configuration, "write_gguf",
                "'" + source.model.source + "' stretches its rotations for long texts in a way that is not written "
                "as GGUF here. Choose a folder of safetensors");
  };
  if (said_by_kind(rotation)) {
    bool const lists = scaling.kind == "longrope";
    if (lists && a != "phi3") refuse();
    std::string const key = a + ".rope.scaling.";
    if (!lists) metadata.set(key + "type", scaling.kind).set(key + "factor", static_cast<float>(scaling.factor));
    metadata.set(key + "original_context_length", checked_cast<std::uint32_t>(scaling.original_tokens));
    if (double const times = lists ? rotation.magnitude : scaling.magnitude; times > 0)
      metadata.set(key + "attn_factor", static_cast<float>(times));
    if (lists)
      factors = {{"rope_factors_long.weight", scaling.long_factors},
                 {"rope_factors_short.weight", scaling.short_factors}};
    return;
  }
  std::int64_t const rotated = static_cast<std::int64_t>(rotation.frequencies.size()) * 2;
  nn::Rotation const plain = nn::rotation_of(rotated, c.head_size, c.rotary_base, {}, c.max_tokens);
  bool stretched = rotation.magnitude != 1;
  std::vector<float> list;
  for (std::size_t i = 0; i < plain.frequencies.size(); ++i) {
    list.push_back(static_cast<float>(plain.frequencies[i] / rotation.frequencies[i]));
    stretched = stretched || std::abs(list.back() - 1) > 1e-6f;
  }
  if (!stretched) return;
  if (a != "llama" || rotation.magnitude != 1) refuse();
  factors = {{"rope_freqs.weight", std::move(list)}};
}

/// Sizes of a model, and what stretches its rotations. Errors: configuration.
inline void add_sizes(io::GgufMetadata& metadata, ModelSource const& source, std::string const& a,
                      GgufFactors& factors) {
  auto const number = [](std::int64_t value) { return checked_cast<std::uint32_t>(value); };
  metadata.set("general.architecture", a).set("general.name", source.name);
  if (source.gpt2()) {
    nn::Gpt2Config const& c = source.gpt2_config();
    metadata.set(a + ".block_count", number(c.layers)).set(a + ".context_length", number(c.max_tokens));
    metadata.set(a + ".embedding_length", number(c.channels)).set(a + ".feed_forward_length", number(4 * c.channels));
    metadata.set(a + ".attention.head_count", number(c.heads));
    metadata.set(a + ".attention.layer_norm_epsilon", c.epsilon);
    return;
  }
  nn::LlamaConfig const& c = source.llama_config();
  add_scaling(metadata, source, a, factors);
  metadata.set(a + ".block_count", number(c.layers)).set(a + ".context_length", number(c.max_tokens));
  metadata.set(a + ".embedding_length", number(c.channels)).set(a + ".feed_forward_length", number(c.hidden));
  metadata.set(a + ".attention.head_count", number(c.heads)).set(a + ".attention.head_count_kv", number(c.kv_heads));
  metadata.set(a + ".attention.key_length", number(c.head_size));
  metadata.set(a + ".attention.value_length", number(c.head_size));
  metadata.set(a + ".attention.layer_norm_rms_epsilon", c.epsilon);
  auto const pairs = static_cast<std::int64_t>(source.model.rotation.frequencies.size());
  metadata.set(a + ".rope.dimension_count", number(2 * pairs));
  metadata.set(a + ".rope.freq_base", static_cast<float>(c.rotary_base));
  metadata.set(a + ".vocab_size", number(c.vocabulary));
  if (c.window > 0 || a == "phi3")  // readers of phi3 want one
    metadata.set(a + ".attention.sliding_window", number(c.window > 0 ? c.window : c.max_tokens));
}

}  // namespace tutti::train::detail
