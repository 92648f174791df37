// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From an ONNX file that this library wrote to a model and its tokenizer: GPT-2, LLaMA, Qwen2, Mistral. What its graph
/// computes is known from its metadata, and computed by the library's own kernels:
///   tutti.model          sizes and rotations, JSON
///   tutti.tokenizer      tokenizer.json
///   tutti.token_roles    which tokens begin and end texts, JSON
///   tutti.chat_template  where the model has one
/// Weights have the names of GGUF files; queries, keys and values are one matrix.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/data/tokenizer_json.hpp>
#include <tutti/infer/model_json.hpp>
#include <tutti/infer/stored_reader.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/onnx/reader.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

namespace detail {

/// Reads one file; every refusal names it.
class OnnxReader : StoredReader {
 public:
  explicit OnnxReader(std::shared_ptr<io::Onnx const> file)
      : StoredReader(file->path(), "read_onnx_model", "Write the model again with ./tutti convert"),
        file_(std::move(file)) {
    model_.keep.push_back(file_);
  }

  nn::StoredModel read() {
    std::string const* const about = file_->find_metadata("tutti.model");
    if (about == nullptr) {
      std::string const maker =
          file_->producer().empty() ? "another program" : io::quote_json(file_->producer().substr(0, 40));
      refuse(concat("it is an ONNX file of ", maker, ", whose sizes are not known: it lacks the metadata tutti.model"),
             "Use the model that it was made of, as a folder of safetensors or as GGUF");
    }
    ModelJson const sizes(concat(file_->path(), ", tutti.model"),
                          io::parse_json(*about, file_->path(), "read_onnx_model"));
    for (auto const& [name, tensor] : file_->tensors()) add(tensor);
    std::string const architecture = sizes.text_or("architecture", "");
    if (architecture == "gpt2") model_.config = gpt2(sizes);
    else if (architecture == "llama") model_.config = llama(sizes);
    else
      refuse("its architecture is '" + architecture.substr(0, 40) + "', neither gpt2 nor llama",
             "Use a model of these");
    return std::move(model_);
  }

 private:
  /// Matrices stay where they are, where that is aligned; vectors become float32.
  void add(io::NamedTensor const& tensor) {
    BlockType type = BlockType::f32;
    switch (tensor.dtype) {
      case DType::float32: break;
      case DType::float16: type = BlockType::f16; break;
      case DType::bfloat16: type = BlockType::bf16; break;
      default: return;  // tables of indices and the like, which optimisers of graphs leave
    }
    auto const* const data = static_cast<std::byte const*>(tensor.data);
    if (tensor.shape.rank() == 1) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
      dequantise(type, data, tensor.shape.size(), values.data());
      return own(tensor.name, std::move(values));
    }
    if (tensor.shape.rank() != 2) return;
    std::int64_t const rows = tensor.shape[0], columns = tensor.shape[1];
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(tensor.dtype) == 0) {
      model_.tensors.push_back({tensor.name, type, rows, columns, data});
      return;
    }
    auto const kept = std::make_shared<std::vector<std::byte>>(tensor.bytes());
    std::memcpy(kept->data(), data, tensor.bytes());
    model_.tensors.push_back({tensor.name, type, rows, columns, kept->data()});
    model_.keep.push_back(kept);
  }

  float epsilon(ModelJson const& sizes) const {
    double const value = sizes.number_or("epsilon", 1e-5);
    if (!(value > 0 && value < 1)) refuse("its epsilon is not between 0 and 1");
    return static_cast<float>(value);
  }
  nn::Gpt2Config gpt2(ModelJson const& sizes) const {
    nn::Gpt2Config const c{.layers = sizes.count("layers"),
                           .heads = sizes.count("heads"),
                           .channels = sizes.count("channels"),
                           .vocabulary = sizes.count("vocabulary"),
                           .padded_vocabulary = classes(),
                           .max_tokens = sizes.count("max_tokens"),
                           .epsilon = epsilon(sizes)};
    validated(c);
    return c;
  }
  nn::LlamaConfig llama(ModelJson const& sizes) {
    nn::LlamaConfig c{.layers = sizes.count("layers"),
                      .heads = sizes.count("heads"),
                      .kv_heads = sizes.count("kv_heads"),
                      .channels = sizes.count("channels"),
                      .head_size = sizes.count("head_size"),
                      .hidden = sizes.count("hidden"),
                      .vocabulary = sizes.count("vocabulary"),
                      .padded_vocabulary = classes(),
                      .max_tokens = sizes.count("max_tokens"),
                      .epsilon = epsilon(sizes),
                      .rotary_base = sizes.number_or("rotary_base", 10000)};
    c.pairing = sizes.flag_or("interleaved", true) ? kernel::RotaryPairing::interleaved : kernel::RotaryPairing::half;
    c.tied = sizes.flag_or("tied", true);
    c.qkv_bias = sizes.flag_or("qkv_bias", false);
    c.window = sizes.count_or("window", 0);
    validated(c);
    model_.rotation.frequencies = sizes.numbers("frequencies");
    model_.rotation.magnitude = sizes.number_or("magnitude", 1);
    bool good = static_cast<std::int64_t>(model_.rotation.frequencies.size()) * 2 == c.head_size &&
                std::isfinite(model_.rotation.magnitude);
    for (double const frequency : model_.rotation.frequencies) good = good && std::isfinite(frequency) && frequency > 0;
    if (!good) refuse("its frequencies of rotations are not one for each pair of a head");
    return c;
  }

  std::shared_ptr<io::Onnx const> file_;
};

}  // namespace detail

/// The model of an ONNX file that this library wrote; matrices are read where the file's memory holds them, if they are
/// aligned there.
/// Errors    format: of another program, or a size or tensor that is not as it must be
inline nn::StoredModel read_onnx_model(std::shared_ptr<io::Onnx const> file) {
  return detail::OnnxReader(std::move(file)).read();
}

/// Nothing, where the model had none. Errors: format.
inline std::optional<data::Tokenizer> onnx_tokenizer(io::Onnx const& file) {
  std::string const* const text = file.find_metadata("tutti.tokenizer");
  if (text == nullptr) return std::nullopt;
  std::string const source = file.path() + ", tutti.tokenizer";
  data::Tokenizer tokenizer = data::parse_tokenizer(*text, source);
  std::string const* const said = file.find_metadata("tutti.token_roles");
  if (said == nullptr) return tokenizer;
  detail::ModelJson const roles(file.path() + ", tutti.token_roles", io::parse_json(*said, source, "read_onnx_model"));
  data::TokenizerParts parts = tokenizer.parts();
  auto const id = [&](char const* key) -> std::optional<std::int32_t> {
    if (!roles.has(key)) return std::nullopt;
    std::int64_t const value = roles.count(key);
    if (value >= tokenizer.vocabulary()) roles.refuse(concat(key, " is no token"));
    return static_cast<std::int32_t>(value);
  };
  parts.roles = {id("begin"), id("end"), id("end_of_turn"), id("unknown"), id("padding"),
                 roles.flag_or("add_begin", false), roles.flag_or("add_end", false)};
  return data::Tokenizer(std::move(parts));
}
inline std::string onnx_chat_template(io::Onnx const& file) {
  std::string const* const text = file.find_metadata("tutti.chat_template");
  return text == nullptr ? std::string() : *text;
}

/// Model and tokenizer of such a file. Errors: format, also where it has no tokenizer.
inline LoadedModel load_onnx(std::shared_ptr<io::Onnx const> file) {
  nn::StoredModel model = read_onnx_model(file);
  auto tokenizer = onnx_tokenizer(*file);
  if (!tokenizer)
    throw Error(ErrorKind::format, "load_onnx",
                "'" + file->path() + "' has no tokenizer. Write it again from a model with its tokenizer.json: "
                "./tutti convert --tokenizer");
  if (tokenizer->vocabulary() > model.vocabulary())
    throw Error(ErrorKind::format, "load_onnx",
                concat("'", file->path(), "' has ", tokenizer->vocabulary(), " tokens and an embedding of ",
                       model.vocabulary(), " rows. Write it again"));
  // Rows behind the tokens are padding.
  std::visit([&](auto& c) { c.vocabulary = tokenizer->vocabulary(); }, model.config);
  return {std::move(model), std::move(*tokenizer), onnx_chat_template(*file)};
}

}  // namespace tutti::infer
