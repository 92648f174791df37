// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GGUF files from models of any file, with their tokenizers; row after row, in bounded memory.

#include <tutti/data/tokenizer.hpp>
#include <tutti/io/gguf_writer.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/train/gguf_sizes.hpp>
#include <tutti/train/gguf_tokenizer.hpp>
#include <tutti/train/model_tensors.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

namespace detail {

/// The wanted type for matrices whose rows are whole blocks of it; vectors and tables of positions stay float32, rows
/// that do not fit become Q8_0 or F16.
inline BlockType exported_type(std::string_view name, Shape const& shape, BlockType wanted) {
  if (shape.rank() < 2 || name == "position_embd.weight") return BlockType::f32;
  std::int64_t const row = shape[shape.rank() - 1];
  for (BlockType const type : {wanted, BlockType::q8_0})
    if (row % block_elements(type) == 0) return type;
  return BlockType::f16;
}

/// llama, or qwen2 for one with biases, or phi3 for one with a window or two lists of factors: what differs between
/// them is no more than that and how rows are laid.
inline std::string gguf_architecture(ModelSource const& source) {
  if (source.gpt2()) return "gpt2";
  nn::LlamaConfig const& c = source.llama_config();
  if (c.qkv_bias && c.window > 0)
    throw Error(ErrorKind::configuration, "write_gguf",
                "'" + source.model.source + "' has biases and a window, for which GGUF files have no architecture");
  nn::Rotation const& rotation = source.model.rotation;
  bool const two_lists = rotation.scaling.kind == "longrope" && said_by_kind(rotation);
  return c.qkv_bias ? "qwen2" : c.window > 0 || two_lists ? "phi3" : "llama";
}

inline std::vector<ExportedTensor> gguf_tensors(ModelSource const& source, std::string const& architecture) {
  std::vector<ExportedTensor> all;
  SourceTensors const tensors(source);
  all.push_back(exported_table("token_embd.weight", tensors.table("token_embd.weight", 0)));
  if (source.gpt2()) {
    nn::Gpt2Config const& c = source.gpt2_config();
    auto const add = [&](std::size_t i, std::int64_t layer) {
      std::string name = (layer < 0 ? "" : block_name(layer)) + std::string(gpt2_gguf_names[i]);
      SourceMatrix from = gpt2_tensor(source, i, layer, 0);
      all.push_back(from.columns == 1 ? exported_vector(std::move(name), std::move(from))
                                      : exported_table(std::move(name), std::move(from)));
    };
    add(1, -1);
    for (std::int64_t layer = 0; layer < c.layers; ++layer)
      for (std::size_t i = 2; i < 14; ++i) add(i, layer);
    add(14, -1);
    add(15, -1);
  } else {
    nn::LlamaConfig const& c = source.llama_config();
    std::int64_t const n = c.channels, q = c.heads * c.head_size;
    auto const pairing =
        architecture == "llama" ? kernel::RotaryPairing::interleaved : kernel::RotaryPairing::half;
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      std::string const block = block_name(layer);
      auto const matrix = [&](char const* name, std::int64_t rows, std::int64_t columns) {
        return tensors.matrix(block + name, rows, columns);
      };
      auto const norm = [&](char const* name) {
        all.push_back(exported_vector(block + name, tensors.vector(block + name, n)));
      };
      SourceMatrix const three[] = {tensors.heads(layer, 0, false, pairing), tensors.heads(layer, 1, false, pairing),
                                    tensors.heads(layer, 2, false, pairing)};
      char const* const names[] = {"attn_q.", "attn_k.", "attn_v."};
      norm("attn_norm.weight");
      if (architecture == "phi3")
        all.push_back(exported_table(block + "attn_qkv.weight", joined({three[0], three[1], three[2]})));
      for (int which = 0; which < 3 && architecture != "phi3"; ++which) {
        all.push_back(exported_table(block + names[which] + "weight", three[which]));
        if (c.qkv_bias)
          all.push_back(exported_vector(block + names[which] + "bias", tensors.heads(layer, which, true, pairing)));
      }
      all.push_back(exported_table(block + "attn_output.weight", matrix("attn_output.weight", n, q)));
      norm("ffn_norm.weight");
      SourceMatrix gate = matrix("ffn_gate.weight", c.hidden, n), up = matrix("ffn_up.weight", c.hidden, n);
      if (architecture == "phi3") up = joined({gate, up});
      else all.push_back(exported_table(block + "ffn_gate.weight", std::move(gate)));
      all.push_back(exported_table(block + "ffn_up.weight", std::move(up)));
      all.push_back(exported_table(block + "ffn_down.weight", matrix("ffn_down.weight", n, c.hidden)));
    }
    all.push_back(exported_vector("output_norm.weight", tensors.vector("output_norm.weight", n)));
  }
  // Readers of phi3 want a head of its own.
  if (bool const own = source.model.find("output.weight") != nullptr; own || architecture == "phi3")
    all.push_back(exported_table("output.weight", tensors.table(own ? "output.weight" : "token_embd.weight", 0)));
  return all;
}

}  // namespace detail

/// A model as a GGUF file, with its tokenizer. No file appears before it is whole.
/// Errors    configuration (a tokenizer of another size, none, or one that the format cannot say), format, io
inline void write_gguf(std::string const& path, ModelSource const& source, ModelExport const& options = {}) {
  if (!source.tokenizer)
    throw Error(ErrorKind::configuration, "write_gguf",
                "'" + source.model.source +
                    "' has no tokenizer.json, and a GGUF file holds a tokenizer. Give the model's by --tokenizer");
  io::GgufMetadata metadata;
  std::string const architecture = detail::gguf_architecture(source);
  detail::GgufFactors factors;
  detail::add_sizes(metadata, source, architecture, factors);
  detail::add_tokenizer(metadata, *source.tokenizer, source.classes(), source.begins_texts, source.chat_template);
  std::vector<ExportedTensor> tensors = detail::gguf_tensors(source, architecture);
  std::vector<nn::StoredTensor> kept;
  for (auto const& [name, list] : factors)
    kept.push_back({name, BlockType::f32, 1, static_cast<std::int64_t>(list.size()),
                    reinterpret_cast<std::byte const*>(list.data())});
  for (nn::StoredTensor const& list : kept)
    tensors.push_back(detail::exported_vector(list.name, {1, {{&list, 0, list.columns}}}));
  auto const type_of = [&](ExportedTensor const& tensor) {
    return detail::exported_type(tensor.name, tensor.shape, options.type);
  };
  std::vector<io::GgufTensorPlan> plan;
  for (ExportedTensor const& tensor : tensors) plan.push_back({tensor.name, type_of(tensor), tensor.shape});
  io::GgufWriter writer(path, metadata, plan);
  detail::stream_tensors(detail::in_order(tensors), options, type_of,
                         [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
  writer.commit();
}

/// A GPT-2 as a GGUF file, with its tokenizer. As the other.
inline void write_gguf(std::string const& path, nn::Gpt2Weights const& weights, data::Tokenizer const& tokenizer,
                       std::string const& model_name, ModelExport const& options = {}) {
  ModelSource source;
  source.model = stored_gpt2(weights, model_name);
  source.begins_texts = true;
  source.name = model_name;
  source.tokenizer = tokenizer;
  detail::know_conversations(source);
  write_gguf(path, source, options);
}

/// A GGUF file again, its matrices in another type; metadata stay.
/// Errors    io
inline void write_gguf(std::string const& path, io::Gguf const& from, ModelExport const& options = {}) {
  io::GgufMetadata metadata = from.metadata();
  metadata.erase("general.file_type");  // it named the former type
  std::vector<nn::StoredTensor> stored;
  std::vector<io::GgufTensorPlan> plan;
  for (io::GgufTensor const& tensor : from.tensors()) {
    plan.push_back({tensor.name, detail::exported_type(tensor.name, tensor.shape, options.type), tensor.shape});
    std::int64_t const columns = tensor.shape[tensor.shape.rank() - 1];
    stored.push_back({tensor.name, tensor.type, tensor.shape.size() / columns, columns,
                      static_cast<std::byte const*>(tensor.data)});
  }
  std::vector<ExportedTensor> tensors;
  for (std::size_t i = 0; i < stored.size(); ++i)
    tensors.push_back({stored[i].name, plan[i].shape, {stored[i].columns, {{&stored[i], 0, stored[i].rows}}}});
  io::GgufWriter writer(path, metadata, plan);
  detail::stream_tensors(
      detail::in_order(tensors), options,
      [&](ExportedTensor const& tensor) { return detail::exported_type(tensor.name, tensor.shape, options.type); },
      [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
  writer.commit();
}

}  // namespace tutti::train
