// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What readers of models have alike, whatever the file: tensors under the names of GGUF files, in the form in which
/// they are computed with.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/stored_model.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// A model ready to decode.
struct LoadedModel {
  nn::StoredModel model;
  data::Tokenizer tokenizer;
  std::string chat_template;  ///< the model's own; empty: it has none
};

namespace detail {

/// Reads one model; every refusal names it.
class StoredReader {
 protected:
  StoredReader(std::string source, char const* operation, char const* advice)
      : operation_(operation), advice_(advice) {
    model_.source = std::move(source);
  }
  ~StoredReader() = default;

  [[noreturn]] void refuse(std::string const& why, char const* advice = nullptr) const {
    throw Error(ErrorKind::format, operation_,
                concat("'", model_.source, "' is not a usable model: ", why, ". ",
                       advice == nullptr ? advice_ : advice));
  }

  void own(std::string name, std::vector<float> values) {
    auto const kept = std::make_shared<std::vector<float> const>(std::move(values));
    model_.keep.push_back(kept);
    model_.tensors.push_back({std::move(name), BlockType::f32, 1, static_cast<std::int64_t>(kept->size()),
                              reinterpret_cast<std::byte const*>(kept->data())});
  }
  /// The row count of the embedding.
  std::int64_t classes() const {
    nn::StoredTensor const* const table = model_.find("token_embd.weight");
    if (table == nullptr) refuse("it has no tensor 'token_embd.weight'");
    return table->rows;
  }
  template <class Config>
  void validated(Config const& c) const {
    // Every layer is looked for by name: a damaged count would take for ever.
    if (c.layers > 1024)
      refuse("it claims " + std::to_string(c.layers) + " layers; there may be 1024", "Fetch or write the file again");
    try {
      nn::validate(c);
    } catch (Error const& error) {
      refuse(error.message());
    }
  }

  /// Phi-3 keeps gate and up in one matrix.
  void split_gates(nn::LlamaConfig const& c) {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      std::string const block = concat("blk.", layer, ".");
      if (model_.find(block + "ffn_gate.weight") != nullptr) continue;
      for (nn::StoredTensor& tensor : model_.tensors)
        if (tensor.name == block + "ffn_up.weight" && tensor.rows == 2 * c.hidden) {
          nn::StoredTensor gate = tensor;
          gate.name = block + "ffn_gate.weight";
          gate.rows = tensor.rows = c.hidden;
          tensor.data += gate.bytes();
          model_.tensors.push_back(std::move(gate));
          break;
        }
    }
  }
  /// One bias for queries, keys and values, as they are computed.
  void join_biases(nn::LlamaConfig& c) {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      std::string const block = concat("blk.", layer, ".");
      std::vector<float> joined;
      for (char const* const part : {"attn_q.bias", "attn_k.bias", "attn_v.bias"})
        if (nn::StoredTensor const* const bias = model_.find(block + part)) {
          auto const* const values = reinterpret_cast<float const*>(bias->data);
          joined.insert(joined.end(), values, values + bias->columns);
        }
      if (joined.empty()) continue;
      if (static_cast<std::int64_t>(joined.size()) != (c.heads + 2 * c.kv_heads) * c.head_size)
        refuse("layer " + std::to_string(layer) + " has biases for some of queries, keys and values alone");
      own(block + "attn_qkv.bias", std::move(joined));
      c.qkv_bias = true;
    }
  }

  nn::Rotation rotation(nn::LlamaConfig const& c, std::int64_t rotated, nn::RotationScaling const& scaling) const {
    try {
      return nn::rotation_of(rotated, c.head_size, c.rotary_base, scaling, c.max_tokens);
    } catch (Error const& error) {
      refuse(error.message(), "Use another model");
    }
  }

  nn::StoredModel model_;

 private:
  char const* operation_;
  char const* advice_;
};

}  // namespace detail
}  // namespace tutti::infer
