// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Folders as Hugging Face publishes models, from models of any file: config.json, model.safetensors or its shards,
/// tokenizer.json and tokenizer_config.json, as transformers reads them. Tensor after tensor, in bounded memory.

#include <tutti/io/atomic_folder.hpp>
#include <tutti/io/safetensors_writer.hpp>
#include <tutti/train/hugging_face_tensors.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/model_tensors.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

namespace detail {

/// Errors: configuration, for a type that safetensors of models do not have.
inline DType dtype_of_block(BlockType type) {
  switch (type) {
    case BlockType::f32: return DType::float32;
    case BlockType::f16: return DType::float16;
    case BlockType::bf16: return DType::bfloat16;
    default:
      throw Error(ErrorKind::configuration, "write_hugging_face",
                  "a folder of safetensors holds F32, F16 or BF16, not " + std::string(name(type)) +
                      ". Choose one of these, or FILE.gguf");
  }
}
/// A float as people write it: 1e-05, not 9.99999974e-06.
inline double as_written(float value) {
  double const round = std::stod(concat(value));
  return static_cast<float>(round) == value ? round : static_cast<double>(value);
}

/// Errors: configuration, for what transformers has no model of.
inline Json hugging_face_config(ModelSource const& source, DType dtype) {
  Json json = {{"vocab_size", source.classes()}, {"torch_dtype", std::string(name(dtype))}};
  if (source.tokenizer) {
    data::TokenRoles const& roles = source.tokenizer->roles();
    auto const mark = source.tokenizer->document_mark();
    auto const begin = roles.begin ? roles.begin : mark, end = roles.end ? roles.end : mark;
    if (begin) json["bos_token_id"] = *begin;
    if (end) json["eos_token_id"] = *end;
    if (roles.padding) json["pad_token_id"] = *roles.padding;
  }
  if (source.gpt2()) {
    nn::Gpt2Config const& c = source.gpt2_config();
    require_tied(source, "a GPT-2 of transformers");
    json.update({{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"activation_function", "gelu_new"},
                 {"n_layer", c.layers},
                 {"n_head", c.heads},
                 {"n_embd", c.channels},
                 {"n_positions", c.max_tokens},
                 {"n_ctx", c.max_tokens},
                 {"layer_norm_epsilon", as_written(c.epsilon)},
                 {"tie_word_embeddings", true}});
    return json;
  }
  nn::LlamaConfig const& c = source.llama_config();
  auto const refuse = [&](char const* why) {
    throw Error(ErrorKind::configuration, "write_hugging_face", "'" + source.model.source + "' " + why);
  };
  if (static_cast<std::int64_t>(source.model.rotation.frequencies.size()) * 2 != c.head_size)
    refuse("rotates a part of each head alone, which is not written as a folder here. Keep the model's own");
  if (c.qkv_bias && c.window > 0) refuse("has biases and a window, which no model of transformers here has");
  std::string const kind = c.qkv_bias ? "Qwen2" : c.window > 0 ? "Mistral" : "Llama";
  json.update({{"architectures", {kind + "ForCausalLM"}},
               {"model_type", c.qkv_bias ? "qwen2" : c.window > 0 ? "mistral" : "llama"},
               {"hidden_act", "silu"},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_size},
               {"hidden_size", c.channels},
               {"intermediate_size", c.hidden},
               {"max_position_embeddings", c.max_tokens},
               {"rms_norm_eps", as_written(c.epsilon)},
               {"rope_theta", c.rotary_base},
               {"tie_word_embeddings", c.tied}});
  if (c.window > 0) json["sliding_window"] = c.window;
  nn::RotationScaling const& scaling = source.model.rotation.scaling;
  if (said_by_kind(source.model.rotation)) {
    Json& s = json["rope_scaling"] = {{"rope_type", scaling.kind},
                                      {"factor", scaling.factor},
                                      {"original_max_position_embeddings", scaling.original_tokens}};
    if (scaling.kind == "longrope") {
      s["short_factor"] = scaling.short_factors;
      s["long_factor"] = scaling.long_factors;
      s["factor"] = static_cast<double>(c.max_tokens) / static_cast<double>(scaling.original_tokens);
      json["original_max_position_embeddings"] = scaling.original_tokens;
    }
    if (scaling.magnitude > 0) s["attention_factor"] = source.model.rotation.magnitude;
  } else if (!rotates_plainly(source)) {  // longrope with one list says any frequencies
    nn::Rotation const plain = nn::rotation_of(c.head_size, c.head_size, c.rotary_base, {}, c.max_tokens);
    std::vector<double> factors;
    for (std::size_t i = 0; i < plain.frequencies.size(); ++i)
      factors.push_back(plain.frequencies[i] / source.model.rotation.frequencies[i]);
    json["rope_scaling"] = {{"rope_type", "longrope"},
                            {"factor", 1.0},
                            {"attention_factor", source.model.rotation.magnitude},
                            {"original_max_position_embeddings", c.max_tokens},
                            {"short_factor", factors},
                            {"long_factor", factors}};
  }
  return json;
}

inline void write_json(std::string const& path, Json const& json) {
  io::write_file(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

/// tokenizer.json, and what transformers wants to know beside it. Errors: format, for a vocabulary that a
/// tokenizer.json cannot say; io.
inline void write_tokenizer_files(std::string const& folder, ModelSource const& source, Json const& config) {
  if (!source.tokenizer) return;
  data::Tokenizer const& tokenizer = *source.tokenizer;
  io::write_file(folder + "/tokenizer.json",
                 source.tokenizer_text.empty() ? data::tokenizer_to_json(tokenizer) : source.tokenizer_text);
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", source.model.max_tokens()},
               {"clean_up_tokenization_spaces", false}},
       generation = Json::object();
  for (auto const& [role, key] : {std::pair{"bos_token", "bos_token_id"}, {"eos_token", "eos_token_id"},
                                  {"pad_token", "pad_token_id"}})
    if (config.contains(key)) {
      json[role] = tokenizer.token_bytes(config[key].get<std::int32_t>());
      generation[key] = config[key];
    }
  if (tokenizer.roles().unknown) json["unk_token"] = tokenizer.token_bytes(*tokenizer.roles().unknown);
  if (tokenizer.roles().end_of_turn && generation.contains("eos_token_id"))
    generation["eos_token_id"] = {generation["eos_token_id"], *tokenizer.roles().end_of_turn};
  if (!source.chat_template.empty()) json["chat_template"] = source.chat_template;
  write_json(folder + "/tokenizer_config.json", json);
  write_json(folder + "/generation_config.json", generation);
}

/// A folder again, its numbers in another type; names, sizes and tokenizer are as they were.
inline void rewrite_hugging_face(std::string const& folder, ModelSource const& source, ModelExport const& options) {
  DType const dtype = dtype_of_block(options.type);
  auto const type_of = [](DType one) {
    return one == DType::float16 ? BlockType::f16 : one == DType::bfloat16 ? BlockType::bf16 : BlockType::f32;
  };
  auto const real = [](DType one) {
    return one == DType::float32 || one == DType::float16 || one == DType::bfloat16;
  };
  io::SafetensorsShards const from(source.folder);
  std::vector<io::NamedTensor> plan;
  std::int64_t total = 0, done = 0;
  for (auto const& [name, tensor] : from.tensors()) {
    plan.push_back({name, real(tensor.dtype) ? dtype : tensor.dtype, tensor.shape, nullptr});
    total += static_cast<std::int64_t>(plan.back().bytes());
  }
  io::SafetensorsWriter writer(folder, plan, from.metadata());
  for (io::NamedTensor const& next : writer.tensors()) {
    io::NamedTensor const& tensor = from.at(next.name);
    if (next.dtype == tensor.dtype) {
      writer.write(tensor.data, tensor.bytes());
    } else {
      std::int64_t const columns = tensor.shape.rank() == 0 ? 1 : tensor.shape[tensor.shape.rank() - 1];
      nn::StoredTensor const stored{next.name, type_of(tensor.dtype), columns > 0 ? tensor.shape.size() / columns : 0,
                                    columns, static_cast<std::byte const*>(tensor.data)};
      stream_tensor({next.name, tensor.shape, {columns, {{&stored, 0, stored.rows}}}}, options.type,
                    [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
    }
    done += static_cast<std::int64_t>(next.bytes());
    if (options.progress) options.progress(next.name, type_of(next.dtype), done, total);
  }
  writer.commit();
  std::string const config = source.folder + "/config.json";
  Json json = io::parse_json(io::read_file(config), config, "write_hugging_face");
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = std::string(name(dtype));
  write_json(folder + "/config.json", json);
  for (char const* const file :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json", "README.md",
        "LICENSE"})
    if (std::string const path = source.folder + "/" + file; io::file_exists(path))
      io::write_file(folder + "/" + file, io::read_file(path));
}

}  // namespace detail

/// A model as a folder in F32, F16 or BF16: GPT-2, LLaMA, Qwen2 (with biases) or Mistral (with a window). No folder
/// appears before it is whole. Errors: configuration, for what such a folder cannot hold; format, overflow, io, also
/// where the folder has something in it.
inline void write_hugging_face(std::string const& path, ModelSource const& source, ModelExport const& options) {
  io::AtomicFolder folder(path);
  DType const dtype = detail::dtype_of_block(options.type);
  if (!source.folder.empty()) {
    detail::rewrite_hugging_face(folder.path(), source, options);
    return folder.commit();
  }
  Json const config = detail::hugging_face_config(source, dtype);
  std::vector<ExportedTensor> const tensors = detail::hugging_face_tensors(source);
  std::vector<io::NamedTensor> plan;
  for (ExportedTensor const& tensor : tensors) plan.push_back({tensor.name, dtype, tensor.shape, nullptr});
  io::SafetensorsWriter writer(folder.path(), plan, {{"format", "pt"}});  // without it transformers refuses the file
  std::vector<ExportedTensor const*> order;
  for (io::NamedTensor const& next : writer.tensors())
    for (ExportedTensor const& tensor : tensors)
      if (tensor.name == next.name) order.push_back(&tensor);
  detail::stream_tensors(
      order, options, [&](ExportedTensor const&) { return options.type; },
      [&](void const* data, std::size_t bytes) { writer.write(data, bytes); });
  writer.commit();
  detail::write_json(folder.path() + "/config.json", config);
  detail::write_tokenizer_files(folder.path(), source, config);
  folder.commit();
}

}  // namespace tutti::train
