// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What readers of models have alike, whatever the file: tensors under the names of GGUF files, in the form in which
/// they are computed with.

#include <tutti/core/checked.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/nn/rotation.hpp>
#include <tutti/nn/stored_model.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
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
    // Before memory is asked for by sizes that are not those of the tensors.
    static_cast<void>(model_.at("token_embd.weight", c.padded_vocabulary, c.channels));
    if constexpr (requires { c.kv_heads; }) {
      static_cast<void>(model_.at("blk.0.attn_output.weight", c.channels, checked_multiply(c.heads, c.head_size)));
      static_cast<void>(model_.at("blk.0.ffn_down.weight", c.channels, c.hidden));
    }
  }
  /// Refuses tensors that nothing reads: the model that has them is another one.
  template <class Config>
  void refuse_unread(Config const& c) const {
    static constexpr std::string_view gpt2[] = {"token_embd.weight", "position_embd.weight", "output_norm.weight",
                                                "output_norm.bias", "output.weight"};
    static constexpr std::string_view gpt2_layer[] = {
        "attn_norm.weight", "attn_norm.bias", "attn_qkv.weight",    "attn_qkv.bias",    "attn_q.weight",
        "attn_k.weight",    "attn_v.weight",  "attn_output.weight", "attn_output.bias", "ffn_norm.weight",
        "ffn_norm.bias",    "ffn_up.weight",  "ffn_up.bias",        "ffn_down.weight",  "ffn_down.bias"};
    static constexpr std::string_view llama[] = {
        "token_embd.weight", "output_norm.weight",       "output.weight",
        "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    static constexpr std::string_view llama_layer[] = {
        "attn_norm.weight", "attn_qkv.weight",     "attn_qkv.bias",   "attn_q.weight", "attn_k.weight",
        "attn_v.weight",    "attn_q.bias",         "attn_k.bias",     "attn_v.bias",   "attn_output.weight",
        "attn_output.bias", "ffn_norm.weight",     "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight",
        "ffn_down.bias",    "attn_rot_embd.weight"};  // the last one is a buffer of old files, made of the base
    using Names = std::span<std::string_view const>;
    constexpr bool is_llama = requires { c.kv_heads; };
    Names const known = is_llama ? Names(llama) : Names(gpt2),
                of_layer = is_llama ? Names(llama_layer) : Names(gpt2_layer);
    auto const is_in = [](Names names, std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (nn::StoredTensor const& tensor : model_.tensors) {
      std::string_view name = tensor.name;
      if (is_in(known, name)) continue;
      if (name.starts_with("blk.")) {
        name.remove_prefix(4);
        std::int64_t layer = -1;
        auto const [end, code] = std::from_chars(name.data(), name.data() + name.size(), layer);
        name.remove_prefix(static_cast<std::size_t>(end - name.data()));
        if (code == std::errc{} && layer >= 0 && layer < c.layers && name.starts_with('.') &&
            is_in(of_layer, name.substr(1)))
          continue;
      }
      refuse(concat("it has a tensor '", tensor.name.substr(0, 64), "', of which models of its kind know nothing"),
             "Use another model");
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
