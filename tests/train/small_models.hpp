// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs of small models of random numbers, whose files go to other formats and back.

#include <tutti/data/tokenizer_json.hpp>
#include <tutti/graph/param.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/tensor/mt19937.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/llama_files.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {

inline std::string tokenizer_text() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::string const mark(tutti::data::end_of_text_mark);
  tokens.insert(tokens.end(), {"th", "the", mark});
  return tutti::data::tokenizer_to_json({tokens, {{'t', 'h'}, {256, 'e'}}, {{mark, 258}}});
}

inline nn::Gpt2Config const gpt2{
    .layers = 2, .heads = 2, .channels = 16, .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 16};
inline nn::LlamaConfig llama(bool tied, bool biases = false) {
  nn::LlamaConfig c{.layers = 2, .heads = 4, .kv_heads = 2, .channels = 32, .head_size = 8, .hidden = 64,
                    .vocabulary = 300, .padded_vocabulary = 384, .max_tokens = 32};
  c.pairing = kernel::RotaryPairing::interleaved;
  c.tied = tied;
  c.qkv_bias = biases;
  return c;
}

/// The folder of a run with one checkpoint, of random numbers; padding rows are zero.
template <class Config>
void write_run(std::string const& out, Config const& config) {
  graph::State state;
  state.add(graph::trace(nn::make_parameters(config), [](graph::Builder& builder, auto const& p) {
    if constexpr (requires { p.norm; }) builder.output("x", p.norm.weight);
    else builder.output("x", p.ln_f.weight);
  }));
  Mt19937 generator(5);
  train::CheckpointContents contents;
  contents.facts = {{"model", train::to_json(config)}};
  contents.tokenizer = tokenizer_text();
  std::map<std::string, std::vector<float>> values;
  auto const add = [&](std::string const& name) {
    graph::Field const* const field = state.find(name);
    if (field == nullptr) return;
    std::vector<float>& numbers = values[name];
    numbers.resize(static_cast<std::size_t>(field->shape.size()));
    generator.fill_normal(numbers, 0.0f, 0.2f);
    if (name == "wte" || name == "embedding" || name == "head")
      std::fill(numbers.begin() + config.vocabulary * config.channels, numbers.end(), 0.0f);
    contents.parameters.push_back({name, DType::float32, field->shape, numbers.data()});
  };
  for (auto const& tensor : nn::gpt2_tensors) add(std::string(tensor.name));
  for (char const* name : {"embedding", "blocks.norm_1.weight", "blocks.norm_2.weight", "blocks.gated.gate.weight",
                           "blocks.gated.up.weight", "blocks.down.weight", "norm.weight", "head"})
    add(name);
  std::sort(contents.parameters.begin(), contents.parameters.end(),
            [](auto const& a, auto const& b) { return a.name < b.name; });
  train::save_checkpoint(out, contents, 0);
}
inline std::vector<float> logits(nn::StoredModel const& model) {
  exec::Context context({.threads = 1});
  infer::Decoder decoder(context, model, {.capacity = 16, .batch = 16});
  infer::Sequence sequence(decoder);
  auto const got = sequence.append(std::vector<std::int32_t>{3, 258, 0, 17, 200, 8, 21});
  return {got.begin(), got.begin() + 259};  // those of the tokenizer's tokens
}
inline double difference(std::vector<float> const& a, std::vector<float> const& b) {
  double worst = 0, scale = 1e-9;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
    scale = std::max(scale, std::abs(double{b[i]}));
  }
  return worst / scale;
}

}  // namespace tutti::test
