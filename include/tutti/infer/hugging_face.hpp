// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a folder as Hugging Face publishes models (config.json, model.safetensors or its shards, tokenizer.json, or
/// vocab.json with merges.txt) to a model and its tokenizer: GPT-2, LLaMA, Mistral, Qwen2, Phi-3. Weights stay where
/// the mapped files hold them, but GPT-2's, which are turned: its files have them as (inputs, outputs).

#include <tutti/core/block_dequantise.hpp>
#include <tutti/data/tokenizer_files.hpp>
#include <tutti/infer/model_json.hpp>
#include <tutti/infer/stored_reader.hpp>
#include <tutti/io/model_format.hpp>
#include <tutti/io/safetensors_shards.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
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
  struct Name {
    std::string_view theirs, ours;
  };
  static constexpr Name gpt2_names[] = {{"wte", "token_embd"},       {"wpe", "position_embd"},
                                        {"ln_f", "output_norm"},     {"lm_head", "output"},
                                        {"ln_1", "attn_norm"},       {"attn.c_attn", "attn_qkv"},
                                        {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"},
                                        {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"}};
  static constexpr Name llama_names[] = {{"embed_tokens", "token_embd"},
                                         {"norm", "output_norm"},
                                         {"lm_head", "output"},
                                         {"input_layernorm", "attn_norm"},
                                         {"self_attn.q_proj", "attn_q"},
                                         {"self_attn.k_proj", "attn_k"},
                                         {"self_attn.v_proj", "attn_v"},
                                         {"self_attn.qkv_proj", "attn_qkv"},
                                         {"self_attn.o_proj", "attn_output"},
                                         {"post_attention_layernorm", "ffn_norm"},
                                         {"mlp.gate_proj", "ffn_gate"},
                                         {"mlp.up_proj", "ffn_up"},
                                         {"mlp.gate_up_proj", "ffn_up"},  // both in one: gate's rows come first
                                         {"mlp.down_proj", "ffn_down"}};

  /// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight". Empty for buffers that are no weights.
  std::string our_name(std::string_view name) const {
    std::string_view rest = name;
    for (std::string_view const outer : {"transformer.", "model."})
      if (rest.starts_with(outer)) rest.remove_prefix(outer.size());
    std::string block;
    if (std::string_view const layers = gpt2_ ? "h." : "layers."; rest.starts_with(layers)) {
      rest.remove_prefix(layers.size());
      std::size_t const digits = rest.find_first_not_of("0123456789");
      if (digits == 0 || digits > 4 || digits >= rest.size() || rest[digits] != '.') unknown(name);
      block = concat("blk.", rest.substr(0, digits), ".");
      rest.remove_prefix(digits + 1);
    }
    for (std::string_view const buffer : {"attn.bias", "attn.masked_bias", "self_attn.rotary_emb.inv_freq"})
      if (rest == buffer) return {};
    std::size_t const dot = rest.rfind('.');
    std::string_view const stem = rest.substr(0, dot == std::string_view::npos ? rest.size() : dot);
    std::string_view const kind = rest.substr(stem.size());
    if (kind == ".weight" || kind == ".bias")
      for (Name const& known : gpt2_ ? std::span<Name const>(gpt2_names) : std::span<Name const>(llama_names))
        if (known.theirs == stem) return concat(block, known.ours, kind);
    unknown(name);
  }
  [[noreturn]] void unknown(std::string_view name) const {
    refuse(concat("nothing of its kind has a tensor ", io::quote_json(name)),
           "Use a model without adapters and parts of others");
  }

  void add(std::string const& theirs, io::NamedTensor const& tensor) {
    std::string name = our_name(theirs);
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
    nn::RotationScaling const scaling = rotation_scaling(c);
    validated(c);
    refuse_unread(c);
    split_gates(c);
    join_biases(c);
    auto const rotated = static_cast<std::int64_t>(static_cast<double>(c.head_size) *
                                                   config_.number_or("partial_rotary_factor", 1.0));
    model_.rotation = rotation(c, rotated, scaling);
    return c;
  }

  /// `rope_scaling` beside `rope_theta`, or both in `rope_parameters`, as later files have them.
  nn::RotationScaling rotation_scaling(nn::LlamaConfig& c) const {
    ModelJson const all = config_.object("rope_parameters");
    ModelJson const s = all.has("rope_theta") ? all : config_.object("rope_scaling");
    c.rotary_base = all.number_or("rope_theta", config_.number_or("rope_theta", 10000.0));
    std::string const kind = s.text_or("rope_type", s.text_or("type", "default"));
    nn::RotationScaling scaling;
    scaling.original_tokens = s.count_or("original_max_position_embeddings",
                                         config_.count_or("original_max_position_embeddings", c.max_tokens));
    scaling.factor = s.number_or("factor", 1.0);
    if (kind == "default") {
      scaling.factor = 1;
    } else if (kind == "linear") {
      scaling.kind = kind;
    } else if (kind == "yarn") {
      scaling.kind = kind;
      if (s.number_or("beta_fast", 32) != 32 || s.number_or("beta_slow", 1) != 1 || s.has("mscale"))
        refuse("its yarn scaling has parameters of its own", "Use another model");
      if (s.has("attention_factor"))
        scaling.magnitude = s.number_or("attention_factor", 1) / (1 + 0.1 * std::log(scaling.factor));
    } else if (kind == "llama3") {
      scaling.factors = llama3_factors(c, s, scaling);
      scaling.factor = 1;
    } else if (kind == "longrope" || kind == "su") {
      scaling.kind = "longrope";
      for (double const factor : s.numbers("long_factor")) scaling.long_factors.push_back(static_cast<float>(factor));
      for (double const factor : s.numbers("short_factor")) scaling.short_factors.push_back(static_cast<float>(factor));
      scaling.factors = c.max_tokens > scaling.original_tokens ? scaling.long_factors : scaling.short_factors;
      scaling.magnitude = s.number_or("attention_factor", 0);
    } else {
      refuse("its rotations are scaled by '" + kind.substr(0, 40) + "'", "Use another model");
    }
    return scaling;
  }
  /// Long waves are stretched by the factor, short ones stay, and between them the stretching grows (LLaMA 3.1).
  static std::vector<float> llama3_factors(nn::LlamaConfig const& c, ModelJson const& s,
                                           nn::RotationScaling const& scaling) {
    double const low = s.number_or("low_freq_factor", 1), high = s.number_or("high_freq_factor", 4);
    auto const original = static_cast<double>(scaling.original_tokens);
    std::vector<float> factors;
    for (std::int64_t i = 0; i < c.head_size / 2; ++i) {
      double const wave =
          2 * std::numbers::pi *
          std::pow(c.rotary_base, 2.0 * static_cast<double>(i) / static_cast<double>(c.head_size));
      double factor = 1;
      if (wave > original / low) {
        factor = scaling.factor;
      } else if (wave >= original / high) {
        double const smooth = (original / wave - low) / (high - low);
        factor = 1 / ((1 - smooth) / scaling.factor + smooth);
      }
      factors.push_back(static_cast<float>(factor));
    }
    return factors;
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
