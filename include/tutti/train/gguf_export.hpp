// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GGUF files from models of any file, with their tokenizers; row after row, in bounded memory.

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/data/vocabulary.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/io/gguf_writer.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/train/model_tensors.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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

/// How other programs call the way in which a tokenizer of bytes cuts a text. Errors: configuration.
inline std::string gguf_pre_tokenizer(data::Tokenizer const& tokenizer) {
  for (char const* const name : {"gpt-2", "smollm", "qwen2", "llama-bpe", "smaug-bpe", "glm4", "default"}) {
    data::NamedPatterns const known = data::patterns_named(name);
    if (known.patterns == tokenizer.patterns() && known.whole_pieces == tokenizer.whole_pieces()) return name;
  }
  throw Error(ErrorKind::configuration, "write_gguf",
              "the tokenizer cuts text in a way for which GGUF files have no name. Choose another target");
}

enum GgufTokenType : std::int32_t { gguf_normal = 1, gguf_unknown, gguf_control, gguf_added, gguf_unused, gguf_byte };

/// A vocabulary of characters has scores in the place of merges: that of a token says how early it is made.
/// Errors: configuration, where scores alone cannot say what the merges do.
inline std::vector<float> gguf_scores(data::Tokenizer const& tokenizer, data::GgufVocabulary vocabulary) {
  data::TokenizerParts const& parts = tokenizer.parts();
  auto const refuse = [](char const* why) {
    throw Error(ErrorKind::configuration, "write_gguf",
                std::string("the tokenizer ") + why + ", which the scores of a GGUF file cannot say. Choose another "
                "target");
  };
  if (!parts.loose.empty() || !parts.patterns.empty()) refuse("cuts texts, or merges characters that are no tokens");
  std::vector<float> scores(vocabulary.tokens.size(), -1e6f);
  std::vector<bool> made(scores.size());
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], id);
  using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;
  auto const pairs_of = [](data::Tokenizer const& one) {
    std::vector<std::pair<std::int32_t, std::size_t>> order;
    for (std::size_t i = 0; i < one.merges().size(); ++i)
      order.emplace_back(one.parts().ranks.empty() ? static_cast<std::int32_t>(i) : one.parts().ranks[i], i);
    std::sort(order.begin(), order.end());
    Pairs pairs;
    for (auto const& [rank, i] : order) pairs.emplace_back(one.merges()[i].left, one.merges()[i].right);
    return pairs;
  };
  Pairs pairs = pairs_of(tokenizer);
  std::size_t before = 0, place = 0;
  for (auto const& [left, right] : pairs) {
    auto const found = ids.find(parts.tokens[static_cast<std::size_t>(left)] +
                                parts.tokens[static_cast<std::size_t>(right)]);
    if (found == ids.end()) refuse("has a merge that makes no token");
    std::size_t const id = found->second;
    if (made[id] && id != before) refuse("makes a token by merges between which others stand");
    if (!made[id]) scores[id] = -static_cast<float>(++place);
    made[id] = true;
    before = id;
  }
  vocabulary.scores = scores;
  Pairs again = pairs_of(data::make_tokenizer(vocabulary, "the tokenizer"));
  std::sort(pairs.begin(), pairs.end());
  std::sort(again.begin(), again.end());
  if (pairs != again) refuse("does not merge all that its tokens allow");
  return scores;
}

/// The keys of a tokenizer; `classes` is what the model has, and tokens that the tokenizer lacks are unused.
/// `begins_texts`: the mark between documents begins a text. Errors: configuration.
inline void add_tokenizer(io::GgufMetadata& metadata, data::Tokenizer const& tokenizer, std::int64_t classes,
                          bool begins_texts, std::string const& chat_template) {
  if (tokenizer.vocabulary() > classes)
    throw Error(ErrorKind::configuration, "write_gguf",
                "the tokenizer has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " +
                    std::to_string(classes) + ". Use that of the model");
  data::TokenizerParts const& parts = tokenizer.parts();
  bool const characters = parts.alphabet == data::Alphabet::characters;
  data::GgufVocabulary v;
  v.model = characters ? "llama" : "gpt2";
  v.pre = characters ? "default" : gguf_pre_tokenizer(tokenizer);
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    std::string const& text = parts.tokens[static_cast<std::size_t>(id)];
    v.tokens.push_back(characters ? text : data::spell_bytes(text));
    v.types.push_back(text.empty() ? gguf_unused : gguf_normal);
    if (text.empty()) v.tokens.back() = "[unused " + std::to_string(id) + "]";
  }
  for (std::int32_t const id : parts.byte_tokens)
    if (characters && id >= 0) v.types[static_cast<std::size_t>(id)] = gguf_byte;
  for (data::SpecialToken const& token : tokenizer.specials()) {
    auto const id = static_cast<std::size_t>(token.id);
    v.tokens[id] = token.content;
    v.types[id] = token.special ? gguf_control : gguf_added;
    if (characters && token.id == parts.roles.unknown) v.types[id] = gguf_unknown;
  }
  for (std::size_t id = v.tokens.size(); static_cast<std::int64_t>(id) < classes; ++id) {
    v.tokens.push_back("[unused " + std::to_string(id) + "]");
    v.types.push_back(gguf_unused);
  }
  data::TokenRoles roles = parts.roles;
  // Every document of this library's training data begins with the mark, and so does a text that is to be continued.
  if (auto const mark = tokenizer.document_mark(); mark && begins_texts)
    roles.begin = roles.end = mark, roles.add_begin = true;
  v.bos = roles.begin ? roles.begin : roles.end;
  v.eos = roles.end;
  v.unknown = roles.unknown;
  v.add_bos = roles.add_begin;
  v.add_space_prefix = parts.prefix_space != data::PrefixSpace::none;
  auto const key = [](char const* name) { return std::string("tokenizer.ggml.") + name; };
  metadata.set(key("model"), v.model).set(key("pre"), v.pre);
  if (characters) {
    metadata.set(key("scores"), io::GgufArray(gguf_scores(tokenizer, v)));
    metadata.set(key("add_space_prefix"), *v.add_space_prefix);
  } else {
    std::vector<std::size_t> order(tokenizer.merges().size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!parts.ranks.empty())
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return parts.ranks[a] < parts.ranks[b]; });
    for (std::size_t const i : order)
      v.merges.push_back(v.tokens[static_cast<std::size_t>(tokenizer.merges()[i].left)] + " " +
                         v.tokens[static_cast<std::size_t>(tokenizer.merges()[i].right)]);
    metadata.set(key("merges"), io::GgufArray(std::move(v.merges)));
  }
  metadata.set(key("tokens"), io::GgufArray(std::move(v.tokens)));
  metadata.set(key("token_type"), io::GgufArray(std::move(v.types)));
  auto const set = [&](char const* name, std::optional<std::int32_t> id) {
    if (id) metadata.set(key(name), static_cast<std::uint32_t>(*id));
  };
  set("bos_token_id", v.bos);
  set("eos_token_id", v.eos);
  set("eot_token_id", roles.end_of_turn);
  set("unknown_token_id", v.unknown);
  set("padding_token_id", roles.padding);
  metadata.set(key("add_bos_token"), roles.add_begin);
  if (roles.add_end) metadata.set(key("add_eos_token"), true);
  if (!chat_template.empty()) metadata.set("tokenizer.chat_template", chat_template);
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

/// Numbers by which pairs are divided, by the names of their tensors.
using GgufFactors = std::vector<std::pair<std::string, std::vector<float>>>;

/// What stretches rotations: keys of its kind, with both lists of longrope as tensors; else one list, which readers
/// know of architecture llama alone. Errors: configuration.
inline void add_scaling(io::GgufMetadata& metadata, ModelSource const& source, std::string const& a,
                        GgufFactors& factors) {
  nn::LlamaConfig const& c = source.llama_config();
  nn::Rotation const& rotation = source.model.rotation;
  nn::RotationScaling const& scaling = rotation.scaling;
  auto const refuse = [&] {
    throw Error(ErrorKind::configuration, "write_gguf",
                "'" + source.model.source + "' stretches its rotations for long texts in a way that is not written "
                "as GGUF here. Choose a folder of safetensors");
  };
  if (said_by_kind(rotation)) {
    bool const lists = scaling.kind == "longrope";
    if (lists && a != "phi3") refuse();
    std::string const key = a + ".rope.scaling.";
    if (!lists) metadata.set(key + "type", scaling.kind).set(key + "factor", static_cast<float>(scaling.factor));
    metadata.set(key + "original_context_length", checked_cast<std::uint32_t>(scaling.original_tokens));
    if (double const times = lists ? rotation.magnitude : scaling.magnitude; times > 0)
      metadata.set(key + "attn_factor", static_cast<float>(times));
    if (lists)
      factors = {{"rope_factors_long.weight", scaling.long_factors},
                 {"rope_factors_short.weight", scaling.short_factors}};
    return;
  }
  std::int64_t const rotated = static_cast<std::int64_t>(rotation.frequencies.size()) * 2;
  nn::Rotation const plain = nn::rotation_of(rotated, c.head_size, c.rotary_base, {}, c.max_tokens);
  bool stretched = rotation.magnitude != 1;
  std::vector<float> list;
  for (std::size_t i = 0; i < plain.frequencies.size(); ++i) {
    list.push_back(static_cast<float>(plain.frequencies[i] / rotation.frequencies[i]));
    stretched = stretched || std::abs(list.back() - 1) > 1e-6f;
  }
  if (!stretched) return;
  if (a != "llama" || rotation.magnitude != 1) refuse();
  factors = {{"rope_freqs.weight", std::move(list)}};
}

/// Sizes of a model, and what stretches its rotations. Errors: configuration.
inline void add_sizes(io::GgufMetadata& metadata, ModelSource const& source, std::string const& a,
                      GgufFactors& factors) {
  auto const number = [](std::int64_t value) { return checked_cast<std::uint32_t>(value); };
  metadata.set("general.architecture", a).set("general.name", source.name);
  if (source.gpt2()) {
    nn::Gpt2Config const& c = source.gpt2_config();
    metadata.set(a + ".block_count", number(c.layers)).set(a + ".context_length", number(c.max_tokens));
    metadata.set(a + ".embedding_length", number(c.channels)).set(a + ".feed_forward_length", number(4 * c.channels));
    metadata.set(a + ".attention.head_count", number(c.heads));
    metadata.set(a + ".attention.layer_norm_epsilon", c.epsilon);
    return;
  }
  nn::LlamaConfig const& c = source.llama_config();
  add_scaling(metadata, source, a, factors);
  metadata.set(a + ".block_count", number(c.layers)).set(a + ".context_length", number(c.max_tokens));
  metadata.set(a + ".embedding_length", number(c.channels)).set(a + ".feed_forward_length", number(c.hidden));
  metadata.set(a + ".attention.head_count", number(c.heads)).set(a + ".attention.head_count_kv", number(c.kv_heads));
  metadata.set(a + ".attention.key_length", number(c.head_size));
  metadata.set(a + ".attention.value_length", number(c.head_size));
  metadata.set(a + ".attention.layer_norm_rms_epsilon", c.epsilon);
  auto const pairs = static_cast<std::int64_t>(source.model.rotation.frequencies.size());
  metadata.set(a + ".rope.dimension_count", number(2 * pairs));
  metadata.set(a + ".rope.freq_base", static_cast<float>(c.rotary_base));
  metadata.set(a + ".vocab_size", number(c.vocabulary));
  if (c.window > 0 || a == "phi3")  // readers of phi3 want one
    metadata.set(a + ".attention.sliding_window", number(c.window > 0 ? c.window : c.max_tokens));
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
