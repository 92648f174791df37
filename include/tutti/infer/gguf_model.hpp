// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a GGUF file to a model and its tokenizer: GPT-2, LLaMA, Qwen2, Phi-3.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/vocabulary.hpp>
#include <tutti/infer/stored_reader.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/stored_model.hpp>

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

/// Reads one file; every refusal names it.
class GgufReader : StoredReader {
 public:
  explicit GgufReader(std::shared_ptr<io::Gguf const> file)
      : StoredReader(file->path(), "read_gguf_model", "Convert the model again"), file_(std::move(file)) {
    model_.keep.push_back(file_);
  }

  nn::StoredModel read() {
    architecture_ = metadata().get<std::string>("general.architecture");
    for (io::GgufTensor const& tensor : file_->tensors()) add(tensor);
    if (architecture_ == "gpt2") model_.config = gpt2();
    else if (architecture_ == "llama" || architecture_ == "qwen2" || architecture_ == "phi3") model_.config = llama();
    else
      refuse("its architecture is '" + architecture_.substr(0, 40) + "', none of gpt2, llama, qwen2 and phi3",
             "Use a model of these");
    return std::move(model_);
  }

 private:
  io::GgufMetadata const& metadata() const noexcept { return file_->metadata(); }
  std::string key(char const* name) const { return architecture_ + "." + name; }
  std::int64_t count(char const* name) const { return metadata().get<std::int64_t>(key(name)); }
  std::int64_t count_or(char const* name, std::int64_t otherwise) const {
    return metadata().get_or<std::int64_t>(key(name), otherwise);
  }

  /// Matrices stay where they are; vectors become float32.
  void add(io::GgufTensor const& tensor) {
    auto const* const data = static_cast<std::byte const*>(tensor.data);
    std::string name = tensor.name == "pos_embd.weight" ? "position_embd.weight" : tensor.name;
    if (tensor.shape.rank() > 2) refuse("tensor '" + name + "' has more than two axes");
    if (tensor.shape.rank() == 2) {
      model_.tensors.push_back({std::move(name), tensor.type, tensor.shape[0], tensor.shape[1], data});
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
    dequantise(tensor.type, data, tensor.shape.size(), values.data());
    own(std::move(name), std::move(values));
  }
  std::int64_t vocabulary() const {
    auto const* const tokens = metadata().list<std::string>("tokenizer.ggml.tokens");
    std::int64_t const rows = classes();
    auto const named = tokens == nullptr ? rows : static_cast<std::int64_t>(tokens->size());
    if (named > rows)
      refuse(concat("it has ", named, " tokens and an embedding of ", rows, " rows"));
    return named;
  }

  nn::Gpt2Config gpt2() {
    nn::Gpt2Config c;
    c.layers = count("block_count");
    c.heads = count("attention.head_count");
    c.channels = count("embedding_length");
    c.vocabulary = vocabulary();
    c.padded_vocabulary = classes();
    nn::StoredTensor const* const positions = model_.find("position_embd.weight");
    c.max_tokens = positions == nullptr ? count("context_length") : positions->rows;
    c.epsilon = metadata().get_or<float>(key("attention.layer_norm_epsilon"), 1e-5f);
    if (std::int64_t const hidden = count_or("feed_forward_length", 4 * c.channels); hidden != 4 * c.channels)
      refuse(concat("its feed-forward layers have ", hidden, " channels, not 4 * ", c.channels), "Use another model");
    validated(c);
    refuse_unread(c);
    return c;
  }

  nn::LlamaConfig llama() {
    nn::LlamaConfig c;
    c.layers = count("block_count");
    c.heads = count("attention.head_count");
    c.kv_heads = count_or("attention.head_count_kv", c.heads);
    c.channels = count("embedding_length");
    c.head_size = count_or("attention.key_length", c.heads > 0 ? c.channels / c.heads : 0);
    if (count_or("attention.value_length", c.head_size) != c.head_size)
      refuse("its keys and values differ in size", "Use another model");
    c.hidden = count("feed_forward_length");
    c.vocabulary = vocabulary();
    c.padded_vocabulary = classes();
    c.max_tokens = count("context_length");
    c.epsilon = metadata().get_or<float>(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    c.rotary_base = metadata().get_or<double>(key("rope.freq_base"), 10000.0);
    // LLaMA's converter permutes rows so that neighbours make pairs.
    c.pairing = architecture_ == "llama" ? kernel::RotaryPairing::interleaved : kernel::RotaryPairing::half;
    if (architecture_ == "phi3") c.window = count_or("attention.sliding_window", 0);
    if (c.window >= c.max_tokens) c.window = 0;  // readers of phi3 want a window
    c.tied = model_.find("output.weight") == nullptr;
    validated(c);
    refuse_unread(c);
    split_gates(c);
    join_biases(c);
    model_.rotation = rotation(c);
    return c;
  }
  nn::Rotation rotation(nn::LlamaConfig const& c) const {
    nn::RotationScaling scaling;
    // Old files have the factor alone, under another name.
    scaling.factor =
        metadata().get_or<double>(key("rope.scaling.factor"), metadata().get_or<double>(key("rope.scale_linear"), 1.0));
    if (scaling.factor == 0) scaling.factor = 1;
    scaling.kind = metadata().get_or<std::string>(key("rope.scaling.type"), scaling.factor != 1 ? "linear" : "none");
    scaling.original_tokens = count_or("rope.scaling.original_context_length", c.max_tokens);
    scaling.magnitude = metadata().get_or<double>(key("rope.scaling.attn_factor"), 0.0);
    std::int64_t const rotated = count_or("rope.dimension_count", c.head_size);
    auto const take = [&](char const* name, std::vector<float>& factors) {
      nn::StoredTensor const* const tensor = model_.find(name);
      if (tensor == nullptr) return;
      auto const* const values = reinterpret_cast<float const*>(tensor->data);
      factors.assign(values, values + tensor->columns);
    };
    take("rope_freqs.weight", scaling.factors);
    take("rope_factors_long.weight", scaling.long_factors);
    take("rope_factors_short.weight", scaling.short_factors);
    if (scaling.long_factors.size() != scaling.short_factors.size())
      refuse("its rope_factors_long and rope_factors_short differ in length");
    if (!scaling.long_factors.empty()) {
      scaling.kind = "longrope";  // files of phi3 do not say it
      scaling.factors = c.max_tokens > scaling.original_tokens ? scaling.long_factors : scaling.short_factors;
    }
    return StoredReader::rotation(c, rotated, scaling);
  }

  std::shared_ptr<io::Gguf const> file_;
  std::string architecture_;
};

/// Calls f, of whose refusals those that do not name the file get its name: the metadata knows none.
template <class F>
auto naming(std::string const& path, F&& f) {
  try {
    return f();
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::format || error.message().find(path) != std::string::npos) throw;
    throw Error(ErrorKind::format, "read_gguf_model", concat("'", path, "' is not a usable model: ", error.message()));
  }
}

}  // namespace detail

/// The model of a GGUF file; matrices are read where the file's memory holds them.
/// Errors    format: an architecture, size or tensor that is not as it must be
inline nn::StoredModel read_gguf_model(std::shared_ptr<io::Gguf const> file) {
  std::string const path = file->path();
  return detail::naming(path, [&] { return detail::GgufReader(std::move(file)).read(); });
}

/// The vocabulary of a GGUF file, for data::make_tokenizer. Errors: format.
inline data::GgufVocabulary gguf_vocabulary(io::Gguf const& file) {
  io::GgufMetadata const& m = file.metadata();
  auto const key = [](char const* name) { return std::string("tokenizer.ggml.") + name; };
  data::GgufVocabulary v;
  v.model = m.get<std::string>(key("model"));
  v.pre = m.get_or<std::string>(key("pre"), "");
  v.tokens = m.get<std::vector<std::string>>(key("tokens"));
  v.scores = m.get_or<std::vector<float>>(key("scores"), {});
  v.types = m.get_or<std::vector<std::int32_t>>(key("token_type"), {});
  v.merges = m.get_or<std::vector<std::string>>(key("merges"), {});
  auto const id = [&](char const* name) -> std::optional<std::int32_t> {
    if (!m.contains(key(name))) return std::nullopt;
    auto const value = m.get<std::int64_t>(key(name));
    if (value < 0 || value >= static_cast<std::int64_t>(v.tokens.size()))
      return std::nullopt;  // files write -1 for none
    return static_cast<std::int32_t>(value);
  };
  auto const flag = [&](char const* name) -> std::optional<bool> {
    if (!m.contains(key(name))) return std::nullopt;
    return m.get<bool>(key(name));
  };
  v.bos = id("bos_token_id");
  v.eos = id("eos_token_id");
  v.eot = id("eot_token_id");
  v.unknown = id("unknown_token_id");
  v.padding = id("padding_token_id");
  v.add_bos = flag("add_bos_token");
  v.add_eos = flag("add_eos_token");
  v.add_space_prefix = flag("add_space_prefix");
  v.chat_template = m.get_or<std::string>("tokenizer.chat_template", "");
  return v;
}

/// Model and tokenizer of a GGUF file. Errors: format.
inline LoadedModel load_gguf(std::shared_ptr<io::Gguf const> file) {
  std::string const path = file->path();
  data::GgufVocabulary const vocabulary = detail::naming(path, [&] { return gguf_vocabulary(*file); });
  data::Tokenizer tokenizer = detail::naming(path, [&] { return data::make_tokenizer(vocabulary, path); });
  return {read_gguf_model(std::move(file)), std::move(tokenizer), vocabulary.chat_template};
}
/// The same of a file by its path, or of its first part. Errors: io, format, out_of_memory.
inline LoadedModel load_gguf(std::string const& path, io::Loading loading = io::Loading::mapped) {
  LoadedModel loaded = load_gguf(std::make_shared<io::Gguf const>(path, loading));
  loaded.model.mapped = loading == io::Loading::mapped;
  return loaded;
}

}  // namespace tutti::infer
