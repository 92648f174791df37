// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GPT-2 (Radford et al. 2019) as a struct of parameters and a function object; gradient, memory plan, communication
/// and checkpoints are derived from the two.

#include <tutti/nn/documents.hpp>
#include <tutti/nn/dropout.hpp>
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

/// The block of a training step that drops elements of what is added to the residual stream, for gpt2_block.
struct DroppedGpt2Block {
  struct Residual {
    Linear const& linear;
    double p;
    StepRandom const& random;
    Var stream;
    constexpr Var operator()(Var x) const {
      Var const y = linear(x);
      return dropout(y, p, random.key(y, stream));
    }
  };
  LayerNorm const& ln_1;
  Linear const& qkv;
  Residual proj;
  LayerNorm const& ln_2;
  Linear const& fc;
  Residual out;
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
    if (p.config.dropout > 0 || p.config.attention_dropout > 0) return dropped(p, tokens, targets);
    return linear_cross_entropy(features(p, tokens), p.wte, targets, p.config.vocabulary);
  }
  /// (B, T, C): what the head reads; nothing is dropped.
  static constexpr Var features(Gpt2 const& p, Var tokens) {
    int const heads = static_cast<int>(p.config.heads);
    Documents const documents = documents_of(p, tokens);
    Var x = embedded(p, tokens, documents);
    x = repeat(p.blocks, x, [&](Gpt2Block const& block, Var h) {
      return gpt2_block(block, h, [&](Var qkv) { return attended(p, qkv, heads, documents); });
    });
    return p.ln_f(x);
  }

 private:
  static constexpr Documents documents_of(Gpt2 const& p, Var tokens) {
    return p.config.document_mark < 0 ? Documents() : Documents(tokens, p.config.document_mark);
  }
  /// With positions that begin anew in each document.
  static constexpr Var embedded(Gpt2 const& p, Var tokens, Documents const& documents) {
    if (p.config.document_mark < 0) return embed(p.wte, p.wpe, tokens);
    return embed(p.wte, tokens) + embed(p.wpe, documents.position);
  }
  static constexpr Var attended(Gpt2 const& p, Var qkv, int heads, Documents const& documents) {
    return p.config.document_mark < 0 ? attention(qkv, heads) : attention(qkv, heads, heads, documents);
  }

  /// With dropout where GPT-2 was trained with it: stream 0 is the embedding's, and every layer has three.
  static constexpr Var dropped(Gpt2 const& p, Var tokens, Var targets) {
    int const heads = static_cast<int>(p.config.heads);
    double const rate = p.config.dropout, of_attention = p.config.attention_dropout;
    if (of_attention > 0 && p.config.document_mark >= 0)
      graph::refuse(graph::Where::current(), "Gpt2Loss", ErrorKind::unavailable,
                    "attention within documents drops nothing. Leave out attention_dropout or document_mark");
    Documents const documents = documents_of(p, tokens);
    StepRandom const random(tokens);
    Var x = embedded(p, tokens, documents);
    x = dropout(x, rate, random.key(x, 0));
    x = repeat(p.blocks, x, [&](Gpt2Block const& b, Var h, Var layer) {
      Var const stream = layer * 3.0;
      DroppedGpt2Block const block{b.ln_1, b.qkv, {b.proj, rate, random, stream + 1.0},
                                   b.ln_2, b.fc,  {b.out, rate, random, stream + 2.0}};
      return gpt2_block(block, h, [&](Var qkv) {
        return of_attention > 0 ? attention(qkv, heads, of_attention, random, stream + 3.0)
                                : attended(p, qkv, heads, documents);
      });
    });
    return linear_cross_entropy(p.ln_f(x), p.wte, targets, p.config.vocabulary);
  }
};

/// Logits (B, T, padded vocabulary) of the token behind each of tokens (B, T): the function of other programs, to which
/// a model goes as ONNX.
struct Gpt2Logits {
  constexpr Var operator()(Gpt2 const& p, Var tokens) const { return linear(Gpt2Loss::features(p, tokens), p.wte); }
};

}  // namespace tutti::nn
