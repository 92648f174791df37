// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Initial weights of a GPT-2, bit for bit those of llm.c (and so of its PyTorch reference) for the same seed.

#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/tensor/mt19937.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace tutti::nn {

/// Fills the sixteen tensors (gpt2_shape). Normal(0, 0.02); where a projection ends in the residual stream the
/// deviation is 0.02 / sqrt(2 layers). Layer-norm weights are one, biases and padding rows of the embedding zero.
/// A null tensor is passed over: others are what they are beside it.
/// Determinism  one generator, drawn in this order: embedding (vocabulary rows only), positions, then layer by layer
/// qkv, proj, fc, out.
inline void initialise_gpt2(Gpt2Config const& c, std::array<float*, gpt2_tensors.size()> const& tensors,
                            std::uint32_t seed) {
  Mt19937 generator(seed);
  float const residual = 0.02f * (1.0f / std::sqrt(2.0f * float(c.layers)));  // rounded as the original rounds
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] != nullptr)
      std::fill_n(tensors[i], gpt2_shape(c, i).size(), gpt2_tensors[i].initial == Gpt2Initial::ones ? 1.0f : 0.0f);
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Gpt2Tensor const& tensor = gpt2_tensors[i];
      bool const residual_end = tensor.initial == Gpt2Initial::normal_residual;
      if ((tensor.initial != Gpt2Initial::normal && !residual_end) || (!tensor.stacked && layer != 0)) continue;
      std::int64_t size = gpt2_shape(c, i).size();
      if (i == 0) size = c.vocabulary * c.channels;
      if (tensor.stacked) size /= c.layers;
      if (tensors[i] == nullptr) {
        generator.skip_normal(static_cast<std::size_t>(size));
        continue;
      }
      std::span<float> const values(tensors[i] + (tensor.stacked ? layer * size : 0), static_cast<std::size_t>(size));
      generator.fill_normal(values, 0.0f, residual_end ? residual : 0.02f);
    }
}

}  // namespace tutti::nn
