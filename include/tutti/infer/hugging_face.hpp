// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a folder as Hugging Face publishes models (config.json, model.safetensors or its shards, tokenizer.json, or
/// vocab.json with merges.txt) to a model and its tokenizer: GPT-2, LLaMA, Mistral, Qwen2, Phi-3. Weights stay where
/// the mapped files hold them, but GPT-2's, which are turned: its files have them as (inputs, outputs).

#include <tutti/core/block_dequantise.hpp>
#include <tutti/data/tokenizer_files.hpp>
#include <tutti/infer/hugging_face_names.hpp>
#include <tutti/infer/hugging_face_rotation.hpp>
#include <tutti/infer/model_json.hpp>
#include <tutti/infer/stored_reader.hpp>
#include <tutti/io/model_format.hpp>
#include <tutti/io/safetensors_shards.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

namespace detail {

/// Errors: format, where the weights of a folder are in files of another kind alone.
inline void require_safetensors(std::string const& folder) {
  auto const there = [&](char const* file) { return io::file_exists(concat(folder, "/", file)); };
  if (there("model.safetensors") || there("model.safetensors.index.json")) return;
  if (std::string const what = io::foreign_model_at(folder); !what.empty())
    throw Error(ErrorKind::format, "read_hugging_face", io::foreign_model_sentence(folder, what));
}

/// Reads one folder.
class HuggingFaceReader : StoredReader {
 public:
  /// `tokens` of the tokenizer: rows of the embedding behind them are padding. Without them every row is a token, and
  /// GPT-2's matrices are left as the files have them, (inputs, outputs).
  HuggingFaceReader(std::string const& folder, std::optional<std::int64_t> tokens)
      : StoredReader(folder, "read_hugging_face", "Fetch the model again"), tokens_(tokens),
        config_(folder + "/config.json", true), files_(std::make_shared<io::SafetensorsShards const>(folder)) {
    model_.keep.push_back(files_);
  }

  nn::StoredModel read() {
    std::string const type = config_.text_or("model_type", "");
    gpt2_ = type == "gpt2";
    if (!gpt2_ && type != "llama" && type != "mistral" && type != "qwen2" && type != "phi3")
      refuse("its model_type is '" + type.substr(0, 40) + "', none of gpt2, llama, mistral, qwen2 and phi3",
             "Use a model of these");
    for (auto const& [name, tensor] : files_->tensors()) add(name, tensor);
    if (gpt2_) model_.config = gpt2();
    else model_.config = llama(type);
    return std::move(model_);
  }

 private:
  void add(std::string const& theirs, io::NamedTensor const& tensor) {
    std::optional<std::string> const known = name_of_hugging_face(theirs, gpt2_);
    if (!known)
      refuse(concat("nothing of its kind has a tensor ", io::quote_json(theirs)),
             "Use a model without adapters and parts of others");
    std::string name = *known;
    if (name.empty()) return;
    if (name == "output.weight" && config_.flag_or("tie_word_embeddings", gpt2_)) return;  // written twice
    BlockType type = BlockType::f32;
    switch (tensor.dtype) {
      case DType::float32: break;
      case DType::float16: type = BlockType::f16; break;
      case DType::bfloat16: type = BlockType::bf16; break;
      default:
        refuse(concat("tensor ", io::quote_json(theirs), " has elements of ", tutti::name(tensor.dtype)),
               "Use the model that was not quantised, or a GGUF file");
    }
    auto const* const data = static_cast<std::byte const*>(tensor.data);
    if (tensor.shape.rank() == 1) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
      dequantise(type, data, tensor.shape.size(), values.data());
      return own(std::move(name), std::move(values));
    }
    if (tensor.shape.rank() != 2) refuse(concat("tensor ", io::quote_json(theirs), " is neither matrix nor vector"));
    std::int64_t const rows = tensor.shape[0], columns = tensor.shape[1];
    bool const turned = gpt2_ && tokens_ && name.starts_with("blk.");
    bool const aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(tensor.dtype) == 0;
    if (!turned && aligned) {
      model_.tensors.push_back({std::move(name), type, rows, columns, data});
      return;
    }
    auto const kept = std::make_shared<std::vector<std::byte>>(tensor.bytes());
    if (!turned) std::memcpy(kept->data(), data, tensor.bytes());
    else if (size_of(tensor.dtype) == 4) turn<4>(data, kept->data(), rows, columns);
    else turn<2>(data, kept->data(), rows, columns);
    model_.tensors.push_back({std::move(name), type, turned ? columns : rows, turned ? rows : columns, kept->data()});
    model_.keep.push_back(kept);
  }
  template <std::size_t bytes>
  static void turn(std::byte const* from, std::byte* to, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t tile = 32;  // both sides within the first cache
    for (std::int64_t i0 = 0; i0 < rows; i0 += tile)
      for (std::int64_t j0 = 0; j0 < columns; j0 += tile)
        for (std::int64_t i = i0; i < std::min(i0 + tile, rows); ++i)
          for (std::int64_t j = j0; j < std::min(j0 + tile, columns); ++j)
            std::memcpy(to + static_cast<std::size_t>(j * rows + i) * bytes,
                        from + static_cast<std::size_t>(i * columns + j) * bytes, bytes);
  }

  std::int64_t vocabulary() const {
    if (!tokens_) return classes();
    if (*tokens_ > classes())
      refuse(concat("its tokenizer has ", *tokens_, " tokens and its embedding ", classes(), " rows"));
    return *tokens_;
  }
  void expect(char const* key, std::string const& got, std::initializer_list<std::string_view> known) const {
    for (std::string_view const one : known)
      if (got == one) return;
    refuse(concat(key, " is '", got.substr(0, 40), "', which is not there"), "Use another model");
  }

  nn::Gpt2Config gpt2() const {
    nn::Gpt2Config c;
    c.layers = config_.count("n_layer");
    c.heads = config_.count("n_head");
    c.channels = config_.count("n_embd");
    c.vocabulary = vocabulary();
    c.padded_vocabulary = classes();
    c.max_tokens = config_.count_or("n_positions", 1024);
    c.epsilon = static_cast<float>(config_.number_or("layer_norm_epsilon", 1e-5));
    expect("activation_function", config_.text_or("activation_function", "gelu_new"),
           {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
    for (auto const& [flag, usual] :
         {std::pair("scale_attn_weights", true), std::pair("scale_attn_by_inverse_layer_idx", false),
          std::pair("add_cross_attention", false)})
      if (config_.flag_or(flag, usual) != usual)
        refuse(concat("its ", flag, " is ", usual ? "false" : "true"), "Use another model");
    if (config_.count_or("n_inner", 4 * c.channels) != 4 * c.channels)
      refuse("its feed-forward layers have not four times its channels", "Use another model");
    validated(c);
    refuse_unread(c);
    return c;
  }

  nn::LlamaConfig llama(std::string const& type) {
    nn::LlamaConfig c;
    c.layers = config_.count("num_hidden_layers");
    c.heads = config_.count("num_attention_heads");
    c.kv_heads = config_.count_or("num_key_value_heads", c.heads);
    c.channels = config_.count("hidden_size");
    c.head_size = config_.count_or("head_dim", c.heads > 0 ? c.channels / c.heads : 0);
    c.hidden = config_.count("intermediate_size");
    c.vocabulary = vocabulary();
    c.padded_vocabulary = classes();
    c.max_tokens = config_.count("max_position_embeddings");
    c.epsilon = static_cast<float>(config_.number_or("rms_norm_eps", 1e-6));
    c.pairing = kernel::RotaryPairing::half;
    c.tied = model_.find("output.weight") == nullptr;
    expect("hidden_act", config_.text_or("hidden_act", "silu"), {"silu", "swish"});
    for (char const* const biases : {"attention_bias", "mlp_bias"})
      if (type != "qwen2" && config_.flag_or(biases, false))
        refuse(concat("its ", biases, " is true"), "Use a model without these biases");
    if (type == "qwen2" && config_.flag_or("use_sliding_window", false))
      refuse("some of its layers alone have a sliding window", "Use another model");
    if (type == "mistral" || type == "phi3") c.window = config_.count_or("sliding_window", 0);
    if (c.window >= c.max_tokens) c.window = 0;
    auto const refuse_scaling = [&](std::string const& why) { refuse(why, "Use another model"); };
    nn::RotationScaling const scaling = rotation_of_hugging_face(config_, c, refuse_scaling);
    validated(c);
    refuse_unread(c);
    split_gates(c);
    join_biases(c);
    auto const rotated = static_cast<std::int64_t>(static_cast<double>(c.head_size) *
                                                   config_.number_or("partial_rotary_factor", 1.0));
    model_.rotation = rotation(c, rotated, scaling);
    return c;
  }

  std::optional<std::int64_t> tokens_;
  ModelJson config_;
  std::shared_ptr<io::SafetensorsShards const> files_;
  bool gpt2_ = false;
};

/// The folder's tokenizer, with the tokens that begin and end texts as its other files name them.
inline data::Tokenizer hugging_face_tokenizer(std::string const& folder) {
  std::string const file = data::tokenizer_in(folder);
  if (file.empty())
    throw Error(ErrorKind::io, "read_hugging_face",
                "folder '" + folder + "' has no tokenizer.json, and no vocab.json with merges.txt. Fetch one of them");
  data::Tokenizer tokenizer = data::read_tokenizer_file(file);
  ModelJson const generation(folder + "/generation_config.json", false), config(folder + "/config.json", true);
  data::TokenRoles roles = tokenizer.roles();
  auto const ids = [&](char const* key) {
    std::vector<std::int32_t> found;
    for (double const id : (generation.has(key) ? generation : config).numbers(key))
      if (id >= 0 && id < tokenizer.vocabulary()) found.push_back(static_cast<std::int32_t>(id));
    return found;
  };
  if (auto const begin = ids("bos_token_id"); !begin.empty() && !roles.begin) roles.begin = begin.front();
  auto const ends = ids("eos_token_id");
  if (!ends.empty() && !roles.end) roles.end = ends.front();
  if (ends.size() > 1 && !roles.end_of_turn) roles.end_of_turn = ends.back();
  if (roles == tokenizer.roles()) return tokenizer;
  data::TokenizerParts parts = tokenizer.parts();
  parts.roles = roles;
  return data::Tokenizer(std::move(parts));
}
/// In tokenizer_config.json, alone or as the default of several, or a file of its own.
inline std::string hugging_face_chat_template(std::string const& folder) {
  if (std::string const own = folder + "/chat_template.jinja"; io::file_exists(own)) return io::read_file(own);
  ModelJson const config(folder + "/tokenizer_config.json", false);
  if (!config.has("chat_template")) return {};
  if (!config["chat_template"].is_array()) return config.text_or("chat_template", "");
  for (auto const& one : config["chat_template"])
    if (one.is_object() && one.value("name", nlohmann::json()) == "default" && one.contains("template") &&
        one["template"].is_string())
      return one["template"].get<std::string>();
  return {};
}

}  // namespace detail

/// Whether a folder holds such a model.
inline bool is_hugging_face(std::string const& folder) {
  return io::folder_exists(folder) && io::file_exists(folder + "/config.json");
}

/// The model of a folder alone, for who writes it in another form: every row of its embedding is a token, and GPT-2's
/// matrices lie as the files have them, (inputs, outputs). Errors: io, format.
inline nn::StoredModel stored_hugging_face(std::string const& folder) {
  detail::require_safetensors(folder);
  return detail::HuggingFaceReader(folder, std::nullopt).read();
}

/// Model and tokenizer of a folder. Errors: io, format.
inline LoadedModel load_hugging_face(std::string const& folder) {
  detail::require_safetensors(folder);
  data::Tokenizer tokenizer = detail::hugging_face_tokenizer(folder);
  std::int64_t const tokens = tokenizer.vocabulary();
  return {detail::HuggingFaceReader(folder, tokens).read(), std::move(tokenizer),
          detail::hugging_face_chat_template(folder)};
}

}  // namespace tutti::infer
