// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Models of the LLaMA family that were trained here, for inference: as they lie in a state or a checkpoint.

#include <tutti/graph/state.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/stored_model.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/model_facts.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tutti::train {

namespace detail {

/// `find(name)` gives a parameter of nn::Llama, layers stacked.
template <class Find>
nn::StoredModel stored_llama(nn::LlamaConfig const& c, std::string source, Find&& find) {
  nn::StoredModel model;
  model.config = c;
  model.source = std::move(source);
  model.rotation = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, {}, c.max_tokens);
  std::int64_t const n = c.channels, q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  auto const add = [&](std::string name, std::int64_t rows, std::int64_t columns, float const* data) {
    model.tensors.push_back(
        {std::move(name), BlockType::f32, rows, columns, reinterpret_cast<std::byte const*>(data)});
  };
  add("token_embd.weight", c.padded_vocabulary, n, find("embedding"));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    std::string const block = "blk." + std::to_string(layer) + ".";
    auto const matrix = [&](char const* gguf, char const* name, std::int64_t rows, std::int64_t columns) {
      add(block + gguf, rows, columns, find(name) + layer * rows * columns);
    };
    matrix("attn_norm.weight", "blocks.norm_1.weight", 1, n);
    float const* const qkv = find("blocks.qkv.weight") + layer * (q + 2 * kv) * n;
    add(block + "attn_q.weight", q, n, qkv);
    add(block + "attn_k.weight", kv, n, qkv + q * n);
    add(block + "attn_v.weight", kv, n, qkv + (q + kv) * n);
    if (c.qkv_bias) matrix("attn_qkv.bias", "blocks.qkv.bias", 1, q + 2 * kv);
    matrix("attn_output.weight", "blocks.proj.weight", n, q);
    matrix("ffn_norm.weight", "blocks.norm_2.weight", 1, n);
    matrix("ffn_gate.weight", "blocks.gated.gate.weight", c.hidden, n);
    matrix("ffn_up.weight", "blocks.gated.up.weight", c.hidden, n);
    matrix("ffn_down.weight", "blocks.down.weight", n, c.hidden);
  }
  add("output_norm.weight", 1, n, find("norm.weight"));
  if (!c.tied) add("output.weight", c.padded_vocabulary, n, find("head"));
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

/// The model in a state of train::TrainStep<nn::LlamaLoss>, which outlives it.
inline nn::StoredModel stored_model(nn::LlamaConfig const& config, graph::State const& state) {
  return detail::stored_llama(config, "the model in training",
                              [&](char const* name) { return state.find(name)->view<float const>().data(); });
}
/// The model of a checkpoint, in the memory of its files. Errors: format.
inline nn::StoredModel stored_llama(std::shared_ptr<Checkpoint const> checkpoint) {
  nn::LlamaConfig const config = llama_config(*checkpoint);
  nn::StoredModel model = detail::stored_llama(config, checkpoint->folder().string(),
                                               detail::CheckpointParameters(*checkpoint, config));
  model.keep.push_back(std::move(checkpoint));
  return model;
}

}  // namespace tutti::train
