// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The graphs of decoding: a model's block function traced with stored weights and a cache.

#include <tutti/graph.hpp>
#include <tutti/nn/cached_attention.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/nn/stored_layers.hpp>
#include <tutti/nn/stored_model.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::nn {

/// The cache of a model's sequences, in every layer (slots, kv_heads, capacity) rows of keys and of values.
struct CacheSizes {
  std::int64_t slots = 1, capacity = 0;
  BlockType type = BlockType::f32;  ///< or f16, bf16, q8_0
};

/// Bytes of it in one layer, and of what a program keeps between its steps, logits included, for `rows` tokens: the
/// latter an estimate from above.
inline std::int64_t cache_layer_bytes(StoredModel const& model, CacheSizes const& sizes) {
  return 2 * sizes.slots * (model.kv_heads() / model.ranks) * sizes.capacity * row_bytes(sizes.type, model.head_size());
}
inline std::int64_t working_bytes(StoredModel const& model, std::int64_t rows) {
  std::int64_t const widths =
      8 * model.channels() + 4 * model.hidden() + 4 * (model.heads() + 2 * model.kv_heads()) * model.head_size();
  return 4 * rows * widths + 12 * 64 * model.classes();
}

/// What one program computes of a model: layers that follow one another, and what stands before and behind them.
struct LayerRange {
  std::int64_t first = 0, last = 0;  ///< `last` is not of them
  bool embeds = true;                ///< begins with the embedding of tokens; else with a hidden state
  bool normalises = true;            ///< ends with the final norm
};

namespace detail {

/// Declares a model's tensors in a graph: matrices as states of bytes, vectors as float32 states.
class Weights {
 public:
  Weights(graph::Builder& builder, StoredModel const& model) : builder_(builder), model_(model) {}

  StoredWeight matrix(std::string const& name, std::int64_t out, std::int64_t in) const {
    StoredTensor const& tensor = model_.at(name, out, in);
    return {builder_.state(name, {out, row_bytes(tensor.type, in)}, graph::zeros(), DType::uint8), tensor.type, out,
            in, tensor.tiled};
  }
  Var vector(std::string const& name, std::int64_t size) const {
    model_.at(name, 1, size);
    return builder_.state(name, {size});
  }
  bool has(std::string const& name) const { return model_.find(name) != nullptr; }

 private:
  graph::Builder& builder_;
  StoredModel const& model_;
};

inline LayerNorm layer_norm_of(Weights const& w, std::string const& name, std::int64_t channels, double epsilon) {
  LayerNorm norm;
  norm.weight.var = w.vector(name + ".weight", channels);
  norm.bias.var = w.vector(name + ".bias", channels);
  norm.epsilon = epsilon;
  return norm;
}
inline RmsNorm rms_norm_of(Weights const& w, std::string const& name, std::int64_t channels, double epsilon) {
  RmsNorm norm;
  norm.weight.var = w.vector(name + ".weight", channels);
  norm.epsilon = epsilon;
  return norm;
}
/// A layer with the bias that the model has for it.
inline StoredLinear linear_of(Weights const& w, std::string const& name, std::int64_t out, std::int64_t in) {
  StoredLinear layer{{w.matrix(name + ".weight", out, in)}};
  if (w.has(name + ".bias")) layer.bias = w.vector(name + ".bias", out);
  return layer;
}
/// The same of a matrix of whose inputs each of `ranks` has its part.
inline StoredLinear joined_of(Weights const& w, std::string const& name, std::int64_t out, std::int64_t in,
                              std::int64_t ranks) {
  StoredLinear layer = linear_of(w, name, out, in / ranks);
  layer.addend = ranks > 1;
  return layer;
}
/// Queries, keys and values: one matrix, or three.
inline StoredLinear qkv_of(Weights const& w, std::string const& block, std::int64_t q, std::int64_t kv,
                           std::int64_t in) {
  if (w.has(block + "attn_qkv.weight")) return linear_of(w, block + "attn_qkv", q + 2 * kv, in);
  StoredLinear layer{{w.matrix(block + "attn_q.weight", q, in), w.matrix(block + "attn_k.weight", kv, in),
                      w.matrix(block + "attn_v.weight", kv, in)}};
  if (w.has(block + "attn_qkv.bias")) layer.bias = w.vector(block + "attn_qkv.bias", q + 2 * kv);
  return layer;
}

/// The block of GPT-2 with stored weights, for gpt2_block.
struct StoredGpt2Block {
  LayerNorm ln_1;
  StoredLinear qkv, proj;
  LayerNorm ln_2;
  StoredLinear fc, out;
};
/// The block of LLaMA with stored weights, for llama_block.
struct StoredLlamaBlock {
  RmsNorm norm_1;
  StoredLinear qkv, proj;
  RmsNorm norm_2;
  StoredGate gated;
  StoredLinear down;
};

/// `tokens` or the hidden state before the first layer, `slot` and `position` (rows) are the graph's inputs.
struct DecodingInputs {
  Var tokens, hidden;
  NewTokens at;
};

inline Cache cache_of(graph::Builder& builder, std::int64_t layer, CacheSizes const& sizes, std::int64_t heads,
                      std::int64_t head_size) {
  Shape const shape{sizes.slots, heads, sizes.capacity, cache_columns(sizes.type, head_size)};
  std::string const name = "cache." + std::to_string(layer);
  return {builder.state(name + ".keys", shape, graph::zeros(), cache_dtype(sizes.type)),
          builder.state(name + ".values", shape, graph::zeros(), cache_dtype(sizes.type))};
}

inline Var hidden_of(graph::Builder& builder, Gpt2Config const& c, StoredModel const& model, DecodingInputs const& in,
                     CacheSizes const& sizes, LayerRange const& range) {
  Weights const w(builder, model);
  std::int64_t const n = model.ranks;
  Var x = in.hidden;
  if (range.embeds)
    x = stored_rows(w.matrix("token_embd.weight", c.padded_vocabulary, c.channels), in.tokens) +
        stored_rows(w.matrix("position_embd.weight", c.max_tokens, c.channels), in.at.position);
  for (std::int64_t layer = range.first; layer < range.last; ++layer) {
    std::string const block = "blk." + std::to_string(layer) + ".";
    double const epsilon = static_cast<double>(c.epsilon);
    StoredGpt2Block const p{layer_norm_of(w, block + "attn_norm", c.channels, epsilon),
                            qkv_of(w, block, c.channels / n, c.channels / n, c.channels),
                            joined_of(w, block + "attn_output", c.channels, c.channels, n),
                            layer_norm_of(w, block + "ffn_norm", c.channels, epsilon),
                            linear_of(w, block + "ffn_up", 4 * c.channels / n, c.channels),
                            joined_of(w, block + "ffn_down", c.channels, 4 * c.channels, n)};
    Cache const cache = cache_of(builder, layer, sizes, c.heads / n, c.head_size());
    x = gpt2_block(p, x, [&](Var qkv) { return cached_attention(qkv, in.at, cache, {c.heads / n, c.heads / n}); });
  }
  return x;
}
inline Var normalised(graph::Builder& builder, Gpt2Config const& c, StoredModel const& model, Var x) {
  return layer_norm_of(Weights(builder, model), "output_norm", c.channels, static_cast<double>(c.epsilon))(x);
}

inline Var hidden_of(graph::Builder& builder, LlamaConfig const& c, StoredModel const& model, DecodingInputs in,
                     CacheSizes const& sizes, LayerRange const& range) {
  Weights const w(builder, model);
  // Angles in float64: far positions keep their precision.
  std::int64_t const rows = in.at.position.shape()[0],
                     pairs = static_cast<std::int64_t>(model.rotation.frequencies.size());
  Var const frequencies = builder.state("rotary.frequencies", {1, pairs}, graph::zeros(), DType::float64);
  Var const angle = reshape(convert(in.at.position, DType::float64), {rows, 1}) * frequencies;
  in.at.cosine = convert(cos(angle) * model.rotation.magnitude, DType::float32);
  in.at.sine = convert(sin(angle) * model.rotation.magnitude, DType::float32);
  in.at.pairing = c.pairing;
  Var x = in.hidden;
  if (range.embeds) x = stored_rows(w.matrix("token_embd.weight", c.padded_vocabulary, c.channels), in.tokens);
  for (std::int64_t layer = range.first; layer < range.last; ++layer) {
    std::string const block = "blk." + std::to_string(layer) + ".";
    std::int64_t const n = model.ranks, q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
    double const epsilon = static_cast<double>(c.epsilon);
    StoredLlamaBlock const p{rms_norm_of(w, block + "attn_norm", c.channels, epsilon),
                             qkv_of(w, block, q / n, kv / n, c.channels),
                             joined_of(w, block + "attn_output", c.channels, q, n),
                             rms_norm_of(w, block + "ffn_norm", c.channels, epsilon),
                             {w.matrix(block + "ffn_gate.weight", c.hidden / n, c.channels),
                              w.matrix(block + "ffn_up.weight", c.hidden / n, c.channels)},
                             joined_of(w, block + "ffn_down", c.channels, c.hidden, n)};
    Cache const cache = cache_of(builder, layer, sizes, c.kv_heads / n, c.head_size);
    x = llama_block(p, x, [&](Var qkv) {
      return cached_attention(qkv, in.at, cache, {c.heads / n, c.kv_heads / n, c.window});
    });
  }
  return x;
}
inline Var normalised(graph::Builder& builder, LlamaConfig const& c, StoredModel const& model, Var x) {
  return rms_norm_of(Weights(builder, model), "output_norm", c.channels, static_cast<double>(c.epsilon))(x);
}

}  // namespace detail

/// Appends `rows` tokens: inputs "tokens" (where the range does not embed them, "hidden" in its place, float32 (rows,
/// channels)), "slot" and "position", int32 (rows), as kernel::CachedAttention says; output "hidden", float32 (rows,
/// channels), behind the range. States are the model's tensors under their names, "rotary.frequencies", and
/// "cache.LAYER.keys" and ".values".
inline graph::Graph decoding_graph(StoredModel const& model, std::int64_t rows, CacheSizes const& sizes,
                                   LayerRange const& range) {
  graph::Builder builder;
  detail::DecodingInputs in;
  if (range.embeds) in.tokens = builder.input("tokens", DType::int32, {rows});
  else in.hidden = builder.input("hidden", DType::float32, {rows, model.channels()});
  in.at.slot = builder.input("slot", DType::int32, {rows});
  in.at.position = builder.input("position", DType::int32, {rows});
  std::visit(
      [&](auto const& config) {
        Var const x = detail::hidden_of(builder, config, model, in, sizes, range);
        builder.output("hidden", range.normalises ? detail::normalised(builder, config, model, x) : x);
      },
      model.config);
  return graph::canonical(builder.graph());
}
/// All layers.
inline graph::Graph decoding_graph(StoredModel const& model, std::int64_t rows, CacheSizes const& sizes) {
  return decoding_graph(model, rows, sizes, {0, model.layers()});
}

/// Input "hidden", float32 (rows, channels); output "logits", float32 (rows, rows of the head); where ranks share the
/// model, (ranks * rows, classes_each), those of each rank's rows of the head one after another.
inline graph::Graph head_graph(StoredModel const& model, std::int64_t rows) {
  graph::Builder builder;
  std::string const name = model.find("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
  std::int64_t const classes = model.classes_each(model.ranks);
  StoredLinear const head{{detail::Weights(builder, model).matrix(name, classes, model.channels())}};
  Var logits = head(builder.input("hidden", DType::float32, {rows, model.channels()}));
  if (model.ranks > 1) logits = graph::all_gather(logits, graph::MeshAxis::tensor, static_cast<int>(model.ranks));
  builder.output("logits", logits);
  return graph::canonical(builder.graph());
}

}  // namespace tutti::nn
