// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tensors of a model by the names, and in the forms, in which Hugging Face's transformers look for them.

#include <tutti/core/concat.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/train/model_source.hpp>
#include <tutti/train/model_tensors.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train::detail {

inline std::vector<ExportedTensor> hugging_face_tensors(ModelSource const& source) {
  std::vector<ExportedTensor> all;
  SourceTensors const tensors(source);
  auto const put = [&](std::string name, SourceMatrix from, bool turned = false) {
    ExportedTensor tensor = from.columns == 1 ? exported_vector(std::move(name), std::move(from))
                                              : exported_table(std::move(name), std::move(from));
    tensor.turned = turned;
    if (turned) tensor.shape = {tensor.from.columns, tensor.from.rows()};
    all.push_back(std::move(tensor));
  };
  if (source.gpt2()) {
    nn::Gpt2Config const& c = source.gpt2_config();
    constexpr char const* names[] = {"wte.weight",         "wpe.weight",      "ln_1.weight",        "ln_1.bias",
                                     "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                     "ln_2.weight",        "ln_2.bias",       "mlp.c_fc.weight",    "mlp.c_fc.bias",
                                     "mlp.c_proj.weight",  "mlp.c_proj.bias", "ln_f.weight",        "ln_f.bias"};
    for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i) {
      bool const stacked = nn::gpt2_tensors[i].stacked;
      for (std::int64_t layer = 0; layer < (stacked ? c.layers : 1); ++layer) {
        SourceMatrix from = gpt2_tensor(source, i, stacked ? layer : -1, 0);
        bool const turned = stacked && from.columns > 1;  // its files have them as (inputs, outputs)
        put(concat("transformer.", stacked ? concat("h.", layer, ".") : "", names[i]), std::move(from), turned);
      }
    }
    return all;
  }
  nn::LlamaConfig const& c = source.llama_config();
  std::int64_t const n = c.channels, q = c.heads * c.head_size;
  put("model.embed_tokens.weight", tensors.table("token_embd.weight", 0));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    std::string const ours = block_name(layer), theirs = concat("model.layers.", layer, ".");
    auto const matrix = [&](char const* to, char const* name, std::int64_t rows, std::int64_t columns) {
      put(theirs + to + ".weight", tensors.matrix(ours + name, rows, columns));
    };
    put(theirs + "input_layernorm.weight", tensors.vector(ours + "attn_norm.weight", n));
    for (int which = 0; which < 3; ++which) {
      std::string const name = theirs + "self_attn." + "qkv"[which] + "_proj";
      put(name + ".weight", tensors.heads(layer, which, false, kernel::RotaryPairing::half));
      if (c.qkv_bias) put(name + ".bias", tensors.heads(layer, which, true, kernel::RotaryPairing::half));
    }
    matrix("self_attn.o_proj", "attn_output.weight", n, q);
    put(theirs + "post_attention_layernorm.weight", tensors.vector(ours + "ffn_norm.weight", n));
    matrix("mlp.gate_proj", "ffn_gate.weight", c.hidden, n);
    matrix("mlp.up_proj", "ffn_up.weight", c.hidden, n);
    matrix("mlp.down_proj", "ffn_down.weight", n, c.hidden);
  }
  put("model.norm.weight", tensors.vector("output_norm.weight", n));
  if (!c.tied) put("lm_head.weight", tensors.table("output.weight", 0));
  return all;
}

}  // namespace tutti::train::detail
