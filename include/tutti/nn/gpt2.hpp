// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GPT-2 (Radford et al. 2019) as a struct of parameters and a function object; gradient, memory plan, communication
/// and checkpoints are derived from the two.

#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/layers.hpp>

namespace tutti::nn {

/// Pre-norm transformer block. Shapes: x (..., C). `attend` makes (..., C) of packed queries, keys and values:
/// attention in training, attention over a cache when decoding.
template <class Block, class Attend>
constexpr Var gpt2_block(Block const& p, Var x, Attend&& attend) {
  x = x + p.proj(attend(p.qkv(p.ln_1(x))));
  return x + p.out(gelu(p.fc(p.ln_2(x))));
}

struct Gpt2Block {
  BOOST_HANA_DEFINE_STRUCT(Gpt2Block, (LayerNorm, ln_1), (Linear, qkv), (Linear, proj), (LayerNorm, ln_2), (Linear, fc),
                           (Linear, out));
};

/// Tensors in the order of llm.c's model files. The head is the token embedding used a second time.
struct Gpt2 {
  BOOST_HANA_DEFINE_STRUCT(Gpt2, (Param, wte), (Param, wpe), (Stack<Gpt2Block>, blocks), (LayerNorm, ln_f));
  Gpt2Config config;
};

/// Parameters of these sizes, not yet bound to a graph. Errors: configuration, from `validate`.
constexpr Gpt2 make_parameters(Gpt2Config const& config) {
  validate(config);
  std::int64_t const c = config.channels;
  double const residual = 0.02 * graph::detail::reciprocal_root(2.0 * static_cast<double>(config.layers));
  double const epsilon = static_cast<double>(config.epsilon);
  Gpt2Block block;
  block.ln_1 = layer_norm_of(c, epsilon);
  block.qkv = linear_of(c, 3 * c, 0.02);
  block.proj = linear_of(c, c, residual);
  block.ln_2 = layer_norm_of(c, epsilon);
  block.fc = linear_of(c, 4 * c, 0.02);
  block.out = linear_of(4 * c, c, residual);
  Gpt2 model;
  model.wte = {{config.padded_vocabulary, c}, graph::normal(0.02)};
  model.wpe = {{config.max_tokens, c}, graph::normal(0.02)};
  model.blocks.block = block;
  model.blocks.length = config.layers;
  model.ln_f = layer_norm_of(c, epsilon);
  model.config = config;
  return model;
}

/// Mean cross-entropy of the next token. Shapes: tokens, targets (B, T); targets of -1 do not count.
struct Gpt2Loss {
  using Config = Gpt2Config;

  constexpr Var operator()(Gpt2 const& p, Var tokens, Var targets) const {
    int const heads = static_cast<int>(p.config.heads);
    Var x = embed(p.wte, p.wpe, tokens);
    x = repeat(p.blocks, x, [heads](Gpt2Block const& block, Var h) {
      return gpt2_block(block, h, [heads](Var qkv) { return attention(qkv, heads); });
    });
    return linear_cross_entropy(p.ln_f(x), p.wte, targets, p.config.vocabulary);
  }
};

}  // namespace tutti::nn
