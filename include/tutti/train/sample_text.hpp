// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a model in training writes by itself.

#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/generate.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/train/llama_files.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::train {

namespace detail {
/// The prompt and `count` tokens more, drawn at temperature 0.5 from the likeliest nine tenths: a model of minutes
/// spells words right only where it is sure.
template <class Decoder>
std::string sampled(Decoder& decoder, data::Tokenizer const& tokenizer, std::string const& prompt, std::int64_t count,
                    std::uint64_t seed) {
  infer::Sampler sampler({.temperature = 0.5, .top_p = 0.9, .seed = seed});
  std::vector<std::int32_t> text{tokenizer.end_of_text()};
  tokenizer.encode_to(text, prompt);
  std::vector<std::int32_t> made;
  infer::generate(decoder, sampler, text, count, -1, [&](std::int32_t token) {
    if (token < tokenizer.vocabulary()) made.push_back(token);
  });
  return prompt + tokenizer.decode(made);
}
}  // namespace detail

/// What the model in a training step's state writes behind a prompt. Blocking. Determinism: weights, prompt and seed
/// decide.
inline std::string sample_text(exec::Context& context, nn::Gpt2Config const& config, graph::State& state,
                               data::Tokenizer const& tokenizer, std::string const& prompt, std::int64_t count,
                               std::uint64_t seed) {
  infer::Gpt2Decoder decoder(context, nn::gpt2_weights(config, state));
  return detail::sampled(decoder, tokenizer, prompt, count, seed);
}
inline std::string sample_text(exec::Context& context, nn::LlamaConfig const& config, graph::State& state,
                               data::Tokenizer const& tokenizer, std::string const& prompt, std::int64_t count,
                               std::uint64_t seed) {
  nn::StoredModel const model = stored_model(config, state);
  infer::Decoder decoder(context, model);
  infer::Sequence sequence(decoder);
  return detail::sampled(sequence, tokenizer, prompt, count, seed);
}

}  // namespace tutti::train
