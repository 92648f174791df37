// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// GPT-2 weights from and to files: checkpoints of this library and model files of llm.c.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/io/llmc_model.hpp>
#include <tutti/nn/gpt2_weights.hpp>
#include <tutti/nn/stored_model.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/model_facts.hpp>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// Sizes of an llm.c model file.
inline nn::Gpt2Config gpt2_config(io::LlmcModel const& model) {
  io::LlmcConfig const& c = model.config();
  nn::Gpt2Config const config{.layers = c.layers, .heads = c.heads, .channels = c.channels, .vocabulary = c.vocabulary,
                              .padded_vocabulary = c.padded_vocabulary, .max_tokens = c.max_sequence};
  nn::validate(config);
  return config;
}

namespace detail {
[[noreturn]] inline void throw_tensor(std::string const& file, std::string_view name, Shape const& has,
                                      Shape const& wants) {
  throw Error(ErrorKind::format, "read_gpt2",
              file + ": tensor '" + std::string(name) + "' has shape " + to_string(has) + ", the model needs " +
                  to_string(wants) + ". Use another file");
}
}  // namespace detail

/// Copies the sixteen tensors of a file into `tensors` (shapes of nn::gpt2_shape). Errors: format, dtype, naming file
/// and tensor.
inline void read_gpt2(Checkpoint const& checkpoint, nn::Gpt2Config const& config,
                      std::array<float*, nn::gpt2_tensors.size()> const& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    io::NamedTensor const& tensor = checkpoint.parameters().at(nn::gpt2_tensors[i].name);
    Shape const wanted = nn::gpt2_shape(config, i);
    if (tensor.shape != wanted) detail::throw_tensor(checkpoint.parameters().path(), tensor.name, tensor.shape, wanted);
    if (tensor.dtype != DType::float32)
      throw Error(ErrorKind::dtype, "read_gpt2",
                  checkpoint.parameters().path() + ": tensor '" + tensor.name + "' is " +
                      std::string(name(tensor.dtype)) + ", not float32");
    std::memcpy(tensors[i], tensor.data, tensor.bytes());
  }
}
inline void read_gpt2(io::LlmcModel const& model, nn::Gpt2Config const& config,
                      std::array<float*, nn::gpt2_tensors.size()> const& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    io::NamedTensor const& tensor = model.tensors()[i];
    Shape const wanted = nn::gpt2_shape(config, i);
    if (tensor.shape.size() != wanted.size()) detail::throw_tensor(model.path(), tensor.name, tensor.shape, wanted);
    if (model.dtype() == DType::float32) {
      std::memcpy(tensors[i], tensor.data, tensor.bytes());
    } else {
      auto const* const from = static_cast<bfloat16 const*>(tensor.data);
      for (std::int64_t j = 0; j < wanted.size(); ++j) tensors[i][j] = float(from[j]);
    }
  }
}

namespace detail {

/// The sixteen tensors under GGUF's names; those of a layer stand behind "blk.N.".
inline constexpr std::array<std::string_view, nn::gpt2_tensors.size()> gpt2_gguf_names = {
    "token_embd.weight",  "position_embd.weight", "attn_norm.weight", "attn_norm.bias",
    "attn_qkv.weight",    "attn_qkv.bias",        "attn_output.weight", "attn_output.bias",
    "ffn_norm.weight",    "ffn_norm.bias",        "ffn_up.weight",    "ffn_up.bias",
    "ffn_down.weight",    "ffn_down.bias",        "output_norm.weight", "output_norm.bias"};

/// A model whose tensors lie layer after layer; data(i) is where tensor i begins.
template <class Data>
nn::StoredModel stored_gpt2(nn::Gpt2Config const& c, std::string source, BlockType type, Data&& data) {
  nn::StoredModel model;
  model.config = c;
  model.source = std::move(source);
  for (std::size_t i = 0; i < nn::gpt2_tensors.size(); ++i) {
    bool const stacked = nn::gpt2_tensors[i].stacked;
    Shape const shape = nn::gpt2_shape(c, i);
    std::int64_t const layers = stacked ? c.layers : 1, columns = shape[shape.rank() - 1],
                       rows = shape.size() / layers / columns;
    auto const* next = static_cast<std::byte const*>(static_cast<void const*>(data(i)));
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      std::string name(gpt2_gguf_names[i]);
      if (stacked) name = "blk." + std::to_string(layer) + "." + name;
      model.tensors.push_back({std::move(name), type, rows, columns, next});
      next += model.tensors.back().bytes();
      if (rows > 1 || type == BlockType::f32) continue;
      // Vectors are float32 wherever a model is decoded.
      auto const kept = std::make_shared<std::vector<float>>(static_cast<std::size_t>(columns));
      dequantise(type, model.tensors.back().data, columns, kept->data());
      model.tensors.back() = {model.tensors.back().name, BlockType::f32, 1, columns,
                              reinterpret_cast<std::byte const*>(kept->data())};
      model.keep.push_back(kept);
    }
  }
  return model;
}

}  // namespace detail

/// A model in the memory of others, which outlives it.
inline nn::StoredModel stored_gpt2(nn::Gpt2Weights const& weights, std::string source) {
  return detail::stored_gpt2(weights.config, std::move(source), BlockType::f32,
                             [&](std::size_t i) { return weights.data[i]; });
}
/// The model of a checkpoint, in the memory of its files. Errors: format, dtype.
inline nn::StoredModel stored_gpt2(std::shared_ptr<Checkpoint const> checkpoint) {
  nn::Gpt2Config const config = gpt2_config(*checkpoint);
  nn::StoredModel model =
      detail::stored_gpt2(config, checkpoint->folder().string(), BlockType::f32, [&](std::size_t i) {
        TensorView<float const> const view = checkpoint->parameters().view<float>(nn::gpt2_tensors[i].name);
        if (Shape const wanted = nn::gpt2_shape(config, i); view.shape() != wanted)
          detail::throw_tensor(checkpoint->parameters().path(), nn::gpt2_tensors[i].name, view.shape(), wanted);
        return view.data();
      });
  model.keep.push_back(std::move(checkpoint));
  return model;
}
/// The model of an llm.c file, in its memory.
inline nn::StoredModel stored_gpt2(std::shared_ptr<io::LlmcModel const> file) {
  BlockType const type = file->dtype() == DType::float32 ? BlockType::f32 : BlockType::bf16;
  nn::StoredModel model = detail::stored_gpt2(gpt2_config(*file), file->path(), type,
                                              [&](std::size_t i) { return file->tensors()[i].data; });
  model.keep.push_back(std::move(file));
  return model;
}

/// Writes an llm.c model file of version 3. Errors: io.
inline void write_llmc_gpt2(std::string const& path, nn::Gpt2Weights const& weights) {
  nn::Gpt2Config const& c = weights.config;
  auto const word = [](std::int64_t value) { return checked_cast<std::int32_t>(value); };
  io::LlmcConfig config;
  config.max_sequence = word(c.max_tokens);
  config.vocabulary = word(c.vocabulary);
  config.layers = word(c.layers);
  config.heads = word(c.heads);
  config.channels = word(c.channels);
  config.padded_vocabulary = word(c.padded_vocabulary);
  std::array<Shape, io::llmc_tensor_count> const shapes = io::llmc_shapes(config);
  std::vector<io::NamedTensor> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    tensors.push_back({std::string(io::llmc_tensor_names[i]), DType::float32, shapes[i], weights.data[i]});
  io::write_llmc_model(path, config, tensors);
}

/// A model in memory of its own, for inference.
class Gpt2Model {
 public:
  explicit Gpt2Model(nn::Gpt2Config const& config) {
    weights_.config = config;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i] = Tensor<float>(nn::gpt2_shape(config, i));
      weights_.data[i] = tensors_[i].data();
    }
  }
  nn::Gpt2Weights const& weights() const noexcept { return weights_; }
  std::array<float*, nn::gpt2_tensors.size()> mutable_data() noexcept {
    std::array<float*, nn::gpt2_tensors.size()> data{};
    for (std::size_t i = 0; i < tensors_.size(); ++i) data[i] = tensors_[i].data();
    return data;
  }

  /// From a checkpoint folder, the `--out` folder of a run (its latest checkpoint), or an llm.c model file.
  /// Errors: io, format, dtype.
  static Gpt2Model load(std::filesystem::path const& path) {
    if (io::folder_exists(path.string())) {
      Checkpoint const checkpoint(folder(path));
      Gpt2Model model(gpt2_config(checkpoint));
      read_gpt2(checkpoint, model.weights_.config, model.mutable_data());
      return model;
    }
    io::LlmcModel const file(path.string());
    Gpt2Model model(gpt2_config(file));
    read_gpt2(file, model.weights_.config, model.mutable_data());
    return model;
  }
  /// The checkpoint that `load` reads of a folder.
  static std::filesystem::path folder(std::filesystem::path const& path) {
    return io::folder_exists((path / "checkpoints").string()) ? find_checkpoint(path, "latest")
                                                              : find_checkpoint({}, path.string());
  }

 private:
  std::array<Tensor<float>, nn::gpt2_tensors.size()> tensors_;
  nn::Gpt2Weights weights_;
};

}  // namespace tutti::train
