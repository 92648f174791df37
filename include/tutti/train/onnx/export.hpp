// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// ONNX files from models of any file: the graph of their logits, which onnxruntime runs, and beside it what this
/// library needs to read them back (infer/onnx/model.hpp). Tensor after tensor, in bounded memory.

#include <tutti/graph/onnx/export.hpp>
#include <tutti/graph/param.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/model_tensors.hpp>
#include <tutti/train/onnx/file.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

namespace detail {

/// Parameters of nn::Gpt2 and nn::Llama under the names of GGUF files, as stored models have them.
inline std::string onnx_weight_name(std::string_view parameter, std::int64_t layer) {
  static constexpr std::pair<std::string_view, std::string_view> llama[] = {
      {"embedding", "token_embd.weight"},           {"blocks.norm_1.weight", "attn_norm.weight"},
      {"blocks.qkv.weight", "attn_qkv.weight"},     {"blocks.qkv.bias", "attn_qkv.bias"},
      {"blocks.proj.weight", "attn_output.weight"}, {"blocks.norm_2.weight", "ffn_norm.weight"},
      {"blocks.gated.gate.weight", "ffn_gate.weight"}, {"blocks.gated.up.weight", "ffn_up.weight"},
      {"blocks.down.weight", "ffn_down.weight"},    {"norm.weight", "output_norm.weight"},
      {"head", "output.weight"}};
  std::string const block = layer < 0 ? "" : block_name(layer);
  for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i)
    if (nn::gpt2_tensors[i].name == parameter) return block + std::string(gpt2_gguf_names[i]);
  for (auto const& [ours, gguf] : llama)
    if (ours == parameter) return block + std::string(gguf);
  return std::string(parameter);
}

/// cos and sin of every position, (positions, pairs) each: what rotates queries and keys.
struct RotationTables {
  std::vector<float> cosine, sine;

  RotationTables(nn::Rotation const& rotation, std::int64_t positions) {
    std::size_t const pairs = rotation.frequencies.size();
    cosine.resize(static_cast<std::size_t>(positions) * pairs);
    sine.resize(cosine.size());
    for (std::int64_t position = 0; position < positions; ++position)
      for (std::size_t i = 0; i < pairs; ++i) {
        double const angle = static_cast<double>(position) * rotation.frequencies[i];
        std::size_t const at = static_cast<std::size_t>(position) * pairs + i;
        cosine[at] = static_cast<float>(std::cos(angle) * rotation.magnitude);
        sine[at] = static_cast<float>(std::sin(angle) * rotation.magnitude);
      }
  }
};

/// The function from input_ids (batch, sequence) to logits.
inline graph::Graph logits_graph(nn::Gpt2Config const& config, std::int64_t batch, std::int64_t sequence) {
  return graph::trace(nn::make_parameters(config), [&](graph::Builder& builder, nn::Gpt2 const& p) {
    builder.output("logits", nn::Gpt2Logits()(p, builder.input("input_ids", DType::int32, {batch, sequence})));
  });
}
inline graph::Graph logits_graph(nn::LlamaConfig const& config, std::int64_t batch, std::int64_t sequence) {
  return graph::trace(nn::make_parameters(config), [&](graph::Builder& builder, nn::Llama const& p) {
    Shape const table{config.max_tokens, config.head_size / 2};
    auto const rows = [&](char const* name) {
      return graph::slice(builder.state(name, table), {0, 0}, {sequence, table[1]});
    };
    graph::Rotations const by{rows("rotary.cosine"), rows("rotary.sine")};
    builder.output("logits",
                   nn::LlamaLogits()(p, builder.input("input_ids", DType::int32, {batch, sequence}), by));
  });
}
/// With any batch and any sequence up to the model's positions; of a model of fewer than 3 positions with all of them.
template <class Config>
graph::OnnxModel onnx_graph(Config const& config, graph::OnnxOptions const& options) {
  std::int64_t const most = config.max_tokens;
  if (most < 3) return graph::to_onnx(logits_graph(config, 1, most), options);
  // Where an extent is by chance that of another axis, one trace may have one node for two of the other: others are
  // tried.
  for (std::int64_t less = 0;; ++less) {
    graph::OnnxAxis const batch{"batch", 1009, 1013}, sequence{"sequence", most - less, most - less - 1};
    try {
      return graph::to_onnx(logits_graph(config, batch.first, sequence.first),
                            logits_graph(config, batch.second, sequence.second), {batch, sequence}, options);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::unavailable || less == 4 || most - less < 4) throw;
    }
  }
}

/// A layer's part of a stacked tensor, or all of one.
inline ExportedTensor onnx_tensor(std::vector<ExportedTensor> const& all, graph::OnnxWeight const& weight,
                                  std::int64_t layers) {
  for (ExportedTensor const& tensor : all) {
    if (tensor.name != weight.parameter) continue;
    if (weight.layer < 0) return {weight.name, weight.shape, tensor.from};
    std::int64_t const rows = tensor.from.rows() / layers, first = weight.layer * rows;
    ExportedTensor part{weight.name, weight.shape, {tensor.from.columns, {}}};
    std::int64_t at = 0;
    for (SourceRows rest : tensor.from.parts) {  // layers are made of whole parts
      if (at >= first && at < first + rows) part.from.parts.push_back(rest);
      at += rest.count;
    }
    return part;
  }
  throw Error(ErrorKind::internal, "write_onnx", "the model has no parameter '" + weight.parameter + "'");
}

inline void set_model_metadata(io::onnx_file::ModelProto& file, ModelSource const& source, std::string const& sizes) {
  set_metadata(file, "tutti.model", sizes);
  if (!source.chat_template.empty()) set_metadata(file, "tutti.chat_template", source.chat_template);
  if (!source.tokenizer) return;
  data::Tokenizer const& tokenizer = *source.tokenizer;
  set_metadata(file, "tutti.tokenizer",
               source.tokenizer_text.empty() ? data::tokenizer_to_json(tokenizer) : source.tokenizer_text);
  data::TokenRoles roles = tokenizer.roles();
  // Every document of this library's training data begins with the mark, and so does a text that is to be continued.
  if (auto const mark = tokenizer.document_mark(); mark && source.begins_texts)
    roles.begin = roles.end = mark, roles.add_begin = true;
  Json json = {{"add_begin", roles.add_begin}, {"add_end", roles.add_end}};
  for (auto const& [key, id] : {std::pair{"begin", roles.begin}, {"end", roles.end}, {"end_of_turn", roles.end_of_turn},
                                {"unknown", roles.unknown}, {"padding", roles.padding}})
    if (id) json[key] = *id;
  set_metadata(file, "tutti.token_roles", json.dump());
}

}  // namespace detail

/// A model as an ONNX file: input_ids (batch, sequence), int64, to logits (batch, sequence, vocabulary), float32, for
/// any batch and any sequence up to the model's positions. Matrices in F32, F16 or BF16, all else in F32. Where the
/// weights have more than 2 GB, they lie beside it in NAME.data. No file appears before it is whole.
/// Errors    configuration, for what is not written as ONNX here: quantised matrices, rotations of a part of each head,
///           a GPT-2 with a head of its own; format, overflow, io
inline void write_onnx(std::string const& path, ModelSource const& source, ModelExport const& options = {},
                       io::OnnxWriteOptions const& file_options = {}) {
  auto const refuse = [&](std::string const& why) {
    throw Error(ErrorKind::configuration, "write_onnx",
                "'" + source.model.source + "' " + why + ", which is not written as ONNX here. Choose a GGUF file");
  };
  auto const dtype = options.type == BlockType::f32   ? DType::float32
                     : options.type == BlockType::f16 ? DType::float16
                                                      : DType::bfloat16;
  if (dtype == DType::bfloat16 && options.type != BlockType::bf16)
    throw Error(ErrorKind::configuration, "write_onnx",
                "an ONNX file holds F32, F16 or BF16 here, not " + std::string(name(options.type)) +
                    ". Choose one of these, or FILE.gguf");
  graph::OnnxOptions graph_options{.name = source.name.empty() ? "tutti" : source.name,
                                   .matrices = dtype,
                                   .weight_name = detail::onnx_weight_name};
  graph::OnnxModel model;
  Json sizes;
  std::int64_t layers = 0;
  std::optional<detail::RotationTables> tables;
  if (source.gpt2()) {
    nn::Gpt2Config c = source.gpt2_config();
    c.vocabulary = c.padded_vocabulary = source.classes();
    c.dropout = c.attention_dropout = 0;
    c.document_mark = -1;
    layers = c.layers;
    model = detail::onnx_graph(c, graph_options);
    sizes = to_json(c);
    sizes["architecture"] = "gpt2";
  } else {
    nn::LlamaConfig c = source.llama_config();
    nn::Rotation const& rotation = source.model.rotation;
    if (static_cast<std::int64_t>(rotation.frequencies.size()) * 2 != c.head_size)
      refuse("rotates a part of each head alone");
    if (c.window >= c.max_tokens) c.window = 0;
    c.vocabulary = c.padded_vocabulary = source.classes();
    c.document_mark = -1;
    c.pairing = kernel::RotaryPairing::interleaved;
    layers = c.layers;
    model = detail::onnx_graph(c, graph_options);
    sizes = to_json(c);
    sizes["frequencies"] = rotation.frequencies;
    sizes["magnitude"] = rotation.magnitude;
    tables.emplace(rotation, c.max_tokens);
  }
  std::vector<ExportedTensor> all = stacked_tensors(source, source.classes());
  std::vector<nn::StoredTensor> stored;
  if (tables) {
    std::int64_t const pairs = source.llama_config().head_size / 2, rows = source.llama_config().max_tokens;
    for (auto const& [name, values] : {std::pair{"rotary.cosine", &tables->cosine}, {"rotary.sine", &tables->sine}})
      stored.push_back({name, BlockType::f32, rows, pairs, reinterpret_cast<std::byte const*>(values->data())});
    for (nn::StoredTensor const& table : stored)
      all.push_back({table.name, {rows, pairs}, {pairs, {{&table, 0, rows}}}});
  }
  io::onnx_file::ModelProto file = detail::onnx_file(model);
  detail::set_model_metadata(file, source, sizes.dump());
  std::vector<ExportedTensor> tensors;
  std::vector<io::NamedTensor> plan;
  for (graph::OnnxWeight const& weight : model.weights) {
    tensors.push_back(detail::onnx_tensor(all, weight, layers));
    plan.push_back({weight.name, weight.dtype, weight.shape, nullptr});
  }
  io::OnnxWriter writer(path, std::move(file), std::move(plan), file_options);
  detail::stream_tensors(
      detail::in_order(tensors), options,
      [&](ExportedTensor const& tensor) {
        bool const vector = tensor.shape.rank() < 2 || tensor.name.starts_with("rotary.");
        return vector ? BlockType::f32 : options.type;
      },
      [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
  writer.commit();
}

}  // namespace tutti::train
