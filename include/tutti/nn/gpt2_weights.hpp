// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tensors of a GPT-2 as plain pointers, in the order of llm.c's model files: what inference and file formats read.

#include <tutti/nn/gpt2_config.hpp>
#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::nn {

/// How a tensor starts: llm.c's recipe, which is PyTorch's for the reference model.
enum class Gpt2Initial : unsigned char { zeros, ones, normal, normal_residual };

struct Gpt2Tensor {
  std::string_view name;  ///< as in the parameter struct
  bool stacked;           ///< has a leading axis of layers
  bool decays;            ///< weight decay applies: matrices and embeddings
  Gpt2Initial initial;
};

/// All sixteen, in file order. Linear weights are (out, in); rows of qkv: all of Q, then K, then V.
inline constexpr std::array<Gpt2Tensor, 16> gpt2_tensors{{
    {"wte", false, true, Gpt2Initial::normal},
    {"wpe", false, true, Gpt2Initial::normal},
    {"blocks.ln_1.weight", true, false, Gpt2Initial::ones},
    {"blocks.ln_1.bias", true, false, Gpt2Initial::zeros},
    {"blocks.qkv.weight", true, true, Gpt2Initial::normal},
    {"blocks.qkv.bias", true, false, Gpt2Initial::zeros},
    {"blocks.proj.weight", true, true, Gpt2Initial::normal_residual},
    {"blocks.proj.bias", true, false, Gpt2Initial::zeros},
    {"blocks.ln_2.weight", true, false, Gpt2Initial::ones},
    {"blocks.ln_2.bias", true, false, Gpt2Initial::zeros},
    {"blocks.fc.weight", true, true, Gpt2Initial::normal},
    {"blocks.fc.bias", true, false, Gpt2Initial::zeros},
    {"blocks.out.weight", true, true, Gpt2Initial::normal_residual},
    {"blocks.out.bias", true, false, Gpt2Initial::zeros},
    {"ln_f.weight", false, false, Gpt2Initial::ones},
    {"ln_f.bias", false, false, Gpt2Initial::zeros},
}};

/// Shape of tensor `index`, layers included.
constexpr Shape gpt2_shape(Gpt2Config const& c, std::size_t index) {
  std::int64_t const l = c.layers, n = c.channels;
  switch (index) {
    case 0: return {c.padded_vocabulary, n};
    case 1: return {c.max_tokens, n};
    case 4: return {l, 3 * n, n};
    case 5: return {l, 3 * n};
    case 6: return {l, n, n};
    case 10: return {l, 4 * n, n};
    case 11: return {l, 4 * n};
    case 12: return {l, n, 4 * n};
    case 14:
    case 15: return {n};
    default: return {l, n};  // layer norms and the biases of proj and out
  }
}

/// Borrowed pointers to every tensor; stacked ones point at layer 0.
struct Gpt2Weights {
  Gpt2Config config;
  std::array<float const*, gpt2_tensors.size()> data{};

  /// By name; a name that is not one of the sixteen does not compile.
  template <class Name>
  static consteval std::size_t index(Name const& name) {
    for (std::size_t i = 0; i < gpt2_tensors.size(); ++i)
      if (gpt2_tensors[i].name == std::string_view(name)) return i;
    throw "tutti: GPT-2 has no tensor of this name";
  }
};

}  // namespace tutti::nn
