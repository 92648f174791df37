// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model as inference holds it: sizes, and tensors as their file stores them, under the names of GGUF files.

#include <tutti/core/block_type.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/nn/gpt2_config.hpp>
#include <tutti/nn/llama_config.hpp>
#include <tutti/tensor/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::nn {

/// `rows` of `columns` numbers each; a vector is one row. Memory of the model.
struct StoredTensor {
  std::string name;
  BlockType type = BlockType::f32;
  std::int64_t rows = 0, columns = 0;
  std::byte const* data = nullptr;
  bool tiled = false;  ///< rows lie in tiles (core/block_tiles.hpp)

  std::int64_t bytes() const { return checked_multiply(rows, row_bytes(type, columns)); }
};

/// kind   none; linear (every frequency divided by `factor`; Chen et al. 2023, arXiv 2306.15595); yarn (Peng et al.
///        2023, arXiv 2309.00071: high frequencies stay, low ones are divided, a ramp between); longrope (factors of
///        each pair, Ding et al. 2024, arXiv 2402.13753)
/// Any kind takes `factors`: frequency i is divided by factors[i], as LLaMA 3.1 and longrope files have them.
struct RotationScaling {
  std::string kind = "none";
  double factor = 1;
  std::int64_t original_tokens = 0;  ///< positions before stretching
  double magnitude = 0;              ///< of cosine and sine; of yarn times what it computes; 0: as the kind computes it
  double fast = 32, slow = 1;  ///< of yarn: pairs with more turns within original_tokens stay, with fewer are divided
  double extrapolation = 1;    ///< of yarn: the share in which those that stay do
  std::vector<float> factors{};
  /// Of longrope: both lists as files have them, `factors` being the one for the model's length.
  std::vector<float> short_factors{}, long_factors{};
};

/// How positions turn queries and keys: frequency of every pair, and what cosine and sine are multiplied by.
struct Rotation {
  std::vector<double> frequencies;
  double magnitude = 1;
  RotationScaling scaling{};  ///< what they were made by, for who writes the model again
};

/// Movable. Tensors refer to memory that `keep` holds.
struct StoredModel {
  std::variant<Gpt2Config, LlamaConfig> config;
  Rotation rotation;  ///< of LlamaConfig
  std::vector<StoredTensor> tensors;
  std::vector<std::shared_ptr<void const>> keep;
  std::string source;  ///< for messages
  bool mapped = false;  ///< matrices are pages of files, which come again when they are touched
  /// Of ranks that share out heads and channels (stored_part), this one's number; `config` is that of the whole.
  std::int64_t rank = 0, ranks = 1;

  StoredTensor const* find(std::string_view name) const noexcept {
    for (StoredTensor const& tensor : tensors)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }
  /// Errors    format: no such tensor, or of another size
  StoredTensor const& at(std::string_view name, std::int64_t rows, std::int64_t columns) const {
    StoredTensor const* const tensor = find(name);
    if (tensor == nullptr)
      throw Error(ErrorKind::format, "StoredModel",
                  concat("'", source, "' has no tensor '", name, "'. Convert the model again"));
    if (tensor->rows != rows || tensor->columns != columns)
      throw Error(ErrorKind::format, "StoredModel",
                  concat("tensor '", name, "' of '", source, "' has ", tensor->rows, " rows of ", tensor->columns,
                         ", and the model's sizes want ", rows, " of ", columns, ". Convert the model again"));
    return *tensor;
  }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (StoredTensor const& tensor : tensors) total += tensor.bytes();
    return total;
  }

  std::int64_t layers() const {
    return std::visit([](auto const& c) { return c.layers; }, config);
  }
  std::int64_t channels() const {
    return std::visit([](auto const& c) { return c.channels; }, config);
  }
  std::int64_t vocabulary() const {
    return std::visit([](auto const& c) { return c.vocabulary; }, config);
  }
  /// Positions that the model was made for.
  std::int64_t max_tokens() const {
    return std::visit([](auto const& c) { return c.max_tokens; }, config);
  }
  /// Positions are a table of the model: there are no more than it has.
  bool learned_positions() const noexcept { return std::holds_alternative<Gpt2Config>(config); }
  std::int64_t heads() const {
    return std::visit([](auto const& c) { return c.heads; }, config);
  }
  std::int64_t kv_heads() const {
    if (auto const* const llama = std::get_if<LlamaConfig>(&config)) return llama->kv_heads;
    return std::get<Gpt2Config>(config).heads;
  }
  std::int64_t hidden() const {
    if (auto const* const llama = std::get_if<LlamaConfig>(&config)) return llama->hidden;
    return 4 * channels();
  }
  /// Rows of the head, and how many of them, from which on, each of several ranks computes. The last ranks' overlap
  /// where they do not divide.
  std::int64_t classes() const {
    return std::visit([](auto const& c) { return c.padded_vocabulary; }, config);
  }
  std::int64_t classes_each(std::int64_t among) const { return (classes() + among - 1) / among; }
  std::int64_t first_class(std::int64_t of, std::int64_t among) const {
    return std::min(of * classes_each(among), classes() - classes_each(among));
  }
  std::int64_t head_size() const {
    if (auto const* const llama = std::get_if<LlamaConfig>(&config)) return llama->head_size;
    return std::get<Gpt2Config>(config).head_size();
  }
};

}  // namespace tutti::nn
