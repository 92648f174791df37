// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Models of the LLaMA family that were trained here, for inference: as they lie in a state or a checkpoint, and as
/// GGUF files.

#include <tutti/graph/state.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/stored_model.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/model_facts.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

namespace detail {

/// The tensors under GGUF's names; `find(name)` gives a parameter of nn::Llama, layers stacked. Embedding and head have
/// `classes` rows.
template <class Find>
std::vector<ExportedTensor> llama_tensors(nn::LlamaConfig const& c, std::int64_t classes, Find&& find) {
  std::vector<ExportedTensor> tensors;
  std::int64_t const n = c.channels, q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  auto const add = [&](std::string name, Shape const& shape, float const* data) {
    tensors.push_back({std::move(name), shape, data});
  };
  add("token_embd.weight", {classes, n}, find("embedding"));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    std::string const block = "blk." + std::to_string(layer) + ".";
    auto const matrix = [&](char const* gguf, char const* name, std::int64_t rows, std::int64_t columns) {
      add(block + gguf, {rows, columns}, find(name) + layer * rows * columns);
    };
    auto const vector = [&](char const* gguf, char const* name, std::int64_t size) {
      add(block + gguf, {size}, find(name) + layer * size);
    };
    vector("attn_norm.weight", "blocks.norm_1.weight", n);
    float const* const qkv = find("blocks.qkv.weight") + layer * (q + 2 * kv) * n;
    add(block + "attn_q.weight", {q, n}, qkv);
    add(block + "attn_k.weight", {kv, n}, qkv + q * n);
    add(block + "attn_v.weight", {kv, n}, qkv + (q + kv) * n);
    matrix("attn_output.weight", "blocks.proj.weight", n, q);
    vector("ffn_norm.weight", "blocks.norm_2.weight", n);
    matrix("ffn_gate.weight", "blocks.gated.gate.weight", c.hidden, n);
    matrix("ffn_up.weight", "blocks.gated.up.weight", c.hidden, n);
    matrix("ffn_down.weight", "blocks.down.weight", n, c.hidden);
  }
  add("output_norm.weight", {n}, find("norm.weight"));
  if (!c.tied) add("output.weight", {classes, n}, find("head"));
  return tensors;
}

/// Errors: configuration, for what no GGUF file of architecture llama can say.
inline void require_llama_of_gguf(nn::LlamaConfig const& c) {
  if (c.pairing != kernel::RotaryPairing::interleaved || c.qkv_bias || c.window != 0)
    throw Error(ErrorKind::configuration, "llama_files",
                "only models with interleaved rotations, without biases and without a window are written here");
}

template <class Find>
nn::StoredModel stored_llama(nn::LlamaConfig const& c, std::string source, Find&& find) {
  require_llama_of_gguf(c);
  nn::StoredModel model;
  model.config = c;
  model.source = std::move(source);
  model.rotation = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, {}, c.max_tokens);
  for (ExportedTensor const& tensor : llama_tensors(c, c.padded_vocabulary, find)) {
    bool const vector = tensor.shape.rank() == 1;
    model.tensors.push_back({tensor.name, BlockType::f32, vector ? 1 : tensor.shape[0],
                             tensor.shape[vector ? 0 : 1], reinterpret_cast<std::byte const*>(tensor.data)});
  }
  return model;
}

/// Parameters of a checkpoint by name, of the shapes that the configuration wants. Errors: format.
class CheckpointParameters {
 public:
  CheckpointParameters(Checkpoint const& checkpoint, nn::LlamaConfig const& config) : file_(checkpoint.parameters()) {
    state_.add(graph::trace(nn::make_parameters(config), [](graph::Builder& builder, nn::Llama const& p) {
      builder.output("norm", p.norm.weight);
    }));
  }
  float const* operator()(char const* name) const {
    TensorView<float const> const view = file_.view<float>(name);
    if (!(view.shape() == state_.find(name)->shape))
      throw Error(ErrorKind::format, "llama_files",
                  file_.path() + ": tensor '" + name + "' has shape " + to_string(view.shape()) +
                      ", the model needs " + to_string(state_.find(name)->shape) + ". Use another checkpoint");
    return view.data();
  }

 private:
  io::Safetensors const& file_;
  graph::State state_;
};

}  // namespace detail

/// The model in a state of train::TrainStep<nn::LlamaLoss>, which outlives it. Errors: configuration.
inline nn::StoredModel stored_model(nn::LlamaConfig const& config, graph::State const& state) {
  return detail::stored_llama(config, "the model in training",
                              [&](char const* name) { return state.find(name)->view<float const>().data(); });
}
/// The model of a checkpoint, in the memory of its files. Errors: format, configuration.
inline nn::StoredModel stored_llama(std::shared_ptr<Checkpoint const> checkpoint) {
  nn::LlamaConfig const config = llama_config(*checkpoint);
  nn::StoredModel model = detail::stored_llama(config, checkpoint->folder().string(),
                                               detail::CheckpointParameters(*checkpoint, config));
  model.keep.push_back(std::move(checkpoint));
  return model;
}

/// A checkpoint of a LLaMA as a GGUF file, with its tokenizer. No file appears before it is whole.
/// Errors    configuration (a tokenizer of another kind or size), format, io
inline void write_gguf(std::string const& path, Checkpoint const& checkpoint, data::Tokenizer const& tokenizer,
                       std::string const& model_name, GgufExport const& options = {}) {
  nn::LlamaConfig const c = llama_config(checkpoint);
  detail::require_llama_of_gguf(c);
  io::GgufMetadata metadata;
  auto const number = [](std::int64_t value) { return checked_cast<std::uint32_t>(value); };
  metadata.set("general.architecture", std::string("llama")).set("general.name", model_name);
  metadata.set("llama.block_count", number(c.layers)).set("llama.context_length", number(c.max_tokens));
  metadata.set("llama.embedding_length", number(c.channels)).set("llama.feed_forward_length", number(c.hidden));
  metadata.set("llama.attention.head_count", number(c.heads)).set("llama.attention.head_count_kv", number(c.kv_heads));
  metadata.set("llama.attention.key_length", number(c.head_size));
  metadata.set("llama.attention.value_length", number(c.head_size));
  metadata.set("llama.attention.layer_norm_rms_epsilon", c.epsilon);
  metadata.set("llama.rope.dimension_count", number(c.head_size));
  metadata.set("llama.rope.freq_base", static_cast<float>(c.rotary_base));
  metadata.set("llama.vocab_size", number(c.vocabulary));
  detail::add_tokenizer(metadata, tokenizer, c.vocabulary);
  detail::write_exported(path, metadata,
                         detail::llama_tensors(c, c.vocabulary, detail::CheckpointParameters(checkpoint, c)), options);
}

}  // namespace tutti::train
