// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GGUF files from models of this library, and from GGUF files with weights of another type; row after row, in bounded
/// memory.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/chat_template.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/io/gguf_writer.hpp>
#include <tutti/nn/gpt2_weights.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

/// What a conversion did and tells while it does it.
struct GgufExport {
  BlockType type = BlockType::f16;
  /// Called behind every tensor: its name, what it became, bytes written so far and in all.
  std::function<void(std::string const&, BlockType, std::int64_t, std::int64_t)> progress{};
};

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

/// Writes the tensors of a plan; `rows(tensor, first, count, to)` gives float32 rows.
template <class Rows>
void write_tensors(io::GgufWriter& writer, std::vector<io::GgufTensorPlan> const& plan, GgufExport const& options,
                   Rows&& rows) {
  std::int64_t total = 0, done = 0;
  for (io::GgufTensorPlan const& tensor : plan) total += tensor.bytes();
  std::vector<float> values;
  std::string bytes;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    std::int64_t const width = plan[i].shape[plan[i].shape.rank() - 1], count = plan[i].shape.size() / width,
                       size = row_bytes(plan[i].type, width),
                       part = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / std::max<std::int64_t>(width, 1));
    for (std::int64_t first = 0; first < count; first += part) {
      std::int64_t const now = std::min(part, count - first);
      values.resize(static_cast<std::size_t>(now * width));
      bytes.resize(static_cast<std::size_t>(now * size));
      rows(i, first, now, values.data());
      quantise(plan[i].type, values.data(), now * width, bytes.data());
      writer.write(bytes.data(), bytes.size());
      done += now * size;
    }
    if (options.progress) options.progress(plan[i].name, plan[i].type, done, total);
  }
  writer.commit();
}

/// A tensor of a model in float32, whole, under its name in GGUF files.
struct ExportedTensor {
  std::string name;
  Shape shape;
  float const* data = nullptr;
};
inline void write_exported(std::string const& path, io::GgufMetadata const& metadata,
                           std::vector<ExportedTensor> const& tensors, GgufExport const& options) {
  std::vector<io::GgufTensorPlan> plan;
  for (ExportedTensor const& tensor : tensors)
    plan.push_back({tensor.name, exported_type(tensor.name, tensor.shape, options.type), tensor.shape});
  io::GgufWriter writer(path, metadata, plan);
  write_tensors(writer, plan, options, [&](std::size_t i, std::int64_t first, std::int64_t count, float* to) {
    std::int64_t const width = tensors[i].shape[tensors[i].shape.rank() - 1];
    std::copy_n(tensors[i].data + first * width, count * width, to);
  });
}

/// The keys of a tokenizer of bytes; `classes` is what the model has, and tokens that the tokenizer lacks are unused.
/// Errors: configuration.
inline void add_tokenizer(io::GgufMetadata& metadata, data::Tokenizer const& tokenizer, std::int64_t classes) {
  auto const refuse = [](std::string const& why) {
    throw Error(ErrorKind::configuration, "write_gguf", "the tokenizer " + why + ". Use that of the model");
  };
  if (tokenizer.parts().alphabet != data::Alphabet::bytes) refuse("is not one of bytes");
  if (tokenizer.patterns() != std::vector<std::string>{std::string(data::gpt2_pattern)})
    refuse("splits text in another way than GPT-2's");
  if (tokenizer.vocabulary() > classes)
    refuse("has " + std::to_string(tokenizer.vocabulary()) + " tokens, the model " + std::to_string(classes));
  constexpr std::int32_t normal = 1, control = 3, added = 4, unused = 5;
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    tokens.push_back(data::spell_bytes(tokenizer.token_bytes(id)));
    types.push_back(normal);
  }
  for (data::SpecialToken const& token : tokenizer.specials()) {
    tokens[static_cast<std::size_t>(token.id)] = token.content;
    types[static_cast<std::size_t>(token.id)] = token.special ? control : added;
  }
  while (static_cast<std::int64_t>(tokens.size()) < classes) {
    tokens.push_back("[unused " + std::to_string(tokens.size()) + "]");
    types.push_back(unused);
  }
  for (data::Merge const& merge : tokenizer.merges())
    merges.push_back(tokens[static_cast<std::size_t>(merge.left)] + " " +
                     tokens[static_cast<std::size_t>(merge.right)]);
  metadata.set("tokenizer.ggml.model", std::string("gpt2")).set("tokenizer.ggml.pre", std::string("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", io::GgufArray(std::move(tokens)));
  metadata.set("tokenizer.ggml.token_type", io::GgufArray(std::move(types)));
  metadata.set("tokenizer.ggml.merges", io::GgufArray(std::move(merges)));
  // Every document of the training data begins with this token, and so does a text that is to be continued.
  if (auto const end = tokenizer.special(data::end_of_text_mark)) {
    metadata.set("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(*end));
    metadata.set("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(*end));
    metadata.set("tokenizer.ggml.add_bos_token", true);
  }
  // A vocabulary with ChatML's marks is of a model that has learned conversations in it, or is to.
  auto const begin = tokenizer.special("<|im_start|>"), end_of_turn = tokenizer.special("<|im_end|>");
  if (begin && end_of_turn) {
    metadata.set("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(*end_of_turn));
    metadata.set("tokenizer.chat_template", std::string(data::chatml_template));
  }
}

}  // namespace detail

/// A GPT-2 as a GGUF file, with its tokenizer. No file appears before it is whole.
/// Errors    configuration (a tokenizer of another kind or size), io
inline void write_gguf(std::string const& path, nn::Gpt2Weights const& weights, data::Tokenizer const& tokenizer,
                       std::string const& model_name, GgufExport const& options = {}) {
  nn::Gpt2Config const& c = weights.config;
  io::GgufMetadata metadata;
  auto const number = [](std::int64_t value) { return checked_cast<std::uint32_t>(value); };
  metadata.set("general.architecture", std::string("gpt2")).set("general.name", model_name);
  metadata.set("gpt2.block_count", number(c.layers)).set("gpt2.context_length", number(c.max_tokens));
  metadata.set("gpt2.embedding_length", number(c.channels)).set("gpt2.feed_forward_length", number(4 * c.channels));
  metadata.set("gpt2.attention.head_count", number(c.heads));
  metadata.set("gpt2.attention.layer_norm_epsilon", c.epsilon);
  detail::add_tokenizer(metadata, tokenizer, c.vocabulary);

  struct Source {
    std::string_view name;  ///< in this library
    std::string_view gguf;
    std::int64_t rows, columns;  ///< of a layer; a vector is one row
  };
  std::int64_t const n = c.channels;
  Source const single[] = {{"wte", "token_embd.weight", c.vocabulary, n},
                           {"wpe", "position_embd.weight", c.max_tokens, n}};
  Source const block[] = {
      {"blocks.ln_1.weight", "attn_norm.weight", 1, n},   {"blocks.ln_1.bias", "attn_norm.bias", 1, n},
      {"blocks.qkv.weight", "attn_qkv.weight", 3 * n, n}, {"blocks.qkv.bias", "attn_qkv.bias", 1, 3 * n},
      {"blocks.proj.weight", "attn_output.weight", n, n}, {"blocks.proj.bias", "attn_output.bias", 1, n},
      {"blocks.ln_2.weight", "ffn_norm.weight", 1, n},    {"blocks.ln_2.bias", "ffn_norm.bias", 1, n},
      {"blocks.fc.weight", "ffn_up.weight", 4 * n, n},    {"blocks.fc.bias", "ffn_up.bias", 1, 4 * n},
      {"blocks.out.weight", "ffn_down.weight", n, 4 * n}, {"blocks.out.bias", "ffn_down.bias", 1, n}};
  Source const last[] = {{"ln_f.weight", "output_norm.weight", 1, n}, {"ln_f.bias", "output_norm.bias", 1, n}};
  std::vector<detail::ExportedTensor> tensors;
  auto const add = [&](Source const& source, std::string const& prefix, std::int64_t layer) {
    std::size_t index = 0;
    while (nn::gpt2_tensors[index].name != source.name) ++index;
    Shape const shape = source.rows == 1 ? Shape{source.columns} : Shape{source.rows, source.columns};
    tensors.push_back({prefix + std::string(source.gguf), shape,
                       weights.data[index] + layer * source.rows * source.columns});
  };
  for (Source const& source : single) add(source, "", 0);
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    for (Source const& source : block) add(source, "blk." + std::to_string(layer) + ".", layer);
  for (Source const& source : last) add(source, "", 0);
  detail::write_exported(path, metadata, tensors, options);
}

/// A GGUF file again, its matrices in another type; metadata stay.
/// Errors    io
inline void write_gguf(std::string const& path, io::Gguf const& from, GgufExport const& options = {}) {
  io::GgufMetadata metadata = from.metadata();
  metadata.erase("general.file_type");  // it named the former type
  std::vector<io::GgufTensorPlan> plan;
  for (io::GgufTensor const& tensor : from.tensors())
    plan.push_back({tensor.name, detail::exported_type(tensor.name, tensor.shape, options.type), tensor.shape});
  io::GgufWriter writer(path, metadata, plan);
  detail::write_tensors(writer, plan, options, [&](std::size_t i, std::int64_t first, std::int64_t count, float* to) {
    io::GgufTensor const& tensor = from.tensors()[i];
    std::int64_t const width = tensor.shape[tensor.shape.rank() - 1];
    dequantise(tensor.type, static_cast<std::byte const*>(tensor.data) + first * row_bytes(tensor.type, width),
               count * width, to);
  });
}

}  // namespace tutti::train
