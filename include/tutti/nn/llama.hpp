// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The LLaMA family (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288) as a struct of parameters and a function
/// object.

#include <tutti/nn/documents.hpp>
#include <tutti/nn/layers.hpp>
#include <tutti/nn/llama_config.hpp>

namespace tutti::nn {

/// The gate of the feed-forward layer: silu(gate(x)) * up(x).
struct SwiGluLayer {
  BOOST_HANA_DEFINE_STRUCT(SwiGluLayer, (Linear, gate), (Linear, up));

  constexpr Var operator()(Var x, graph::Where where = graph::Where::current()) const {
    return swiglu(gate(x, where), up(x, where), where);
  }
};

/// Pre-norm block. Shapes: x (..., C). `attend` makes (..., heads * head size) of packed queries, keys and values:
/// rotations and attention in training, the same over a cache when decoding.
template <class Block, class Attend>
constexpr Var llama_block(Block const& p, Var x, Attend&& attend) {
  x = x + p.proj(attend(p.qkv(p.norm_1(x))));
  return x + p.down(p.gated(p.norm_2(x)));
}

/// Rows of qkv: all of Q, then K, then V.
struct LlamaBlock {
  BOOST_HANA_DEFINE_STRUCT(LlamaBlock, (RmsNorm, norm_1), (Linear, qkv), (Linear, proj), (RmsNorm, norm_2),
                           (SwiGluLayer, gated), (Linear, down));
};

struct Llama {
  BOOST_HANA_DEFINE_STRUCT(Llama, (Param, embedding), (Stack<LlamaBlock>, blocks), (RmsNorm, norm), (Param, head));
  LlamaConfig config;
};

/// Parameters of these sizes, not yet bound to a graph. Errors: configuration, from `validate`.
constexpr Llama make_parameters(LlamaConfig const& config) {
  validate(config);
  std::int64_t const c = config.channels, q = config.heads * config.head_size, kv = config.kv_heads * config.head_size;
  double const residual = 0.02 * graph::detail::reciprocal_root(2.0 * static_cast<double>(config.layers));
  double const epsilon = static_cast<double>(config.epsilon);
  LlamaBlock block;
  block.norm_1 = rms_norm_of(c, epsilon);
  block.qkv = linear_of(c, q + 2 * kv, 0.02, config.qkv_bias);
  block.proj = linear_of(q, c, residual, false);
  block.norm_2 = rms_norm_of(c, epsilon);
  block.gated.gate = linear_of(c, config.hidden, 0.02, false);
  block.gated.up = linear_of(c, config.hidden, 0.02, false);
  block.down = linear_of(config.hidden, c, residual, false);
  Llama model;
  model.embedding = {{config.padded_vocabulary, c}, graph::normal(0.02)};
  model.blocks.block = block;
  model.blocks.length = config.layers;
  model.norm = rms_norm_of(c, epsilon);
  if (config.tied) model.head.absent = true;
  else model.head = {{config.padded_vocabulary, c}, graph::normal(0.02)};
  model.config = config;
  return model;
}

/// Mean cross-entropy of the next token. Shapes: tokens, targets (B, T); targets of -1 do not count.
struct LlamaLoss {
  using Config = LlamaConfig;

  constexpr Var operator()(Llama const& p, Var tokens, Var targets) const {
    LlamaConfig const& c = p.config;
    std::int64_t const length = tokens.shape()[1];
    if (c.window > 0 && length > c.window)
      graph::refuse(graph::Where::current(), "LlamaLoss", ErrorKind::unavailable,
                    "training attends to all earlier tokens; make the sequences no longer than the window");
    graph::Rotations const by = graph::rotations(*tokens.builder, length, c.head_size, c.rotary_base);
    return linear_cross_entropy(features(p, tokens, by), head(p), targets, c.vocabulary);
  }
  /// (B, T, C): what the head reads. `by`: of T positions. `windowed`: tokens see the window of the configuration
  /// alone, where it has one.
  static constexpr Var features(Llama const& p, Var tokens, graph::Rotations const& by, bool windowed = false) {
    LlamaConfig const& c = p.config;
    std::int64_t const q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
    Var x = embed(p.embedding, tokens);
    std::int64_t const rows = x.shape()[0], length = x.shape()[1];
    Documents const documents = c.document_mark < 0 ? Documents() : Documents(tokens, c.document_mark);
    x = repeat(p.blocks, x, [&](LlamaBlock const& block, Var h) {
      return llama_block(block, h, [&](Var qkv) {
        auto const part = [&](std::int64_t from, std::int64_t to) {
          return slice(qkv, {0, 0, from}, {rows, length, to});
        };
        Var const queries = rotary(part(0, q), by, c.pairing), keys = rotary(part(q, q + kv), by, c.pairing);
        Var const turned = graph::concatenate({queries, keys, part(q + kv, q + 2 * kv)}, 2);
        int const heads = static_cast<int>(c.heads), kv_heads = static_cast<int>(c.kv_heads);
        if (windowed && c.window > 0) return windowed_attention(turned, heads, kv_heads, c.window);
        // Rotations tell how far apart two tokens are: positions need not begin anew.
        return c.document_mark < 0 ? graph::attention(turned, heads, kv_heads)
                                   : attention(turned, heads, kv_heads, documents);
      });
    });
    return p.norm(x);
  }
  static constexpr Var head(Llama const& p) { return p.config.tied ? p.embedding : p.head; }
};

/// Logits (B, T, padded vocabulary) of the token behind each of tokens (B, T): the function of other programs, to which
/// a model goes as ONNX. `by`: of T positions, stretched as the model has them.
struct LlamaLogits {
  constexpr Var operator()(Llama const& p, Var tokens, graph::Rotations const& by) const {
    return linear(LlamaLoss::features(p, tokens, by, true), LlamaLoss::head(p));
  }
};

}  // namespace tutti::nn
