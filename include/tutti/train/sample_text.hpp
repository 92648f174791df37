// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a model in training writes by itself.

#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/generate.hpp>
#include <tutti/infer/gpt2_decoder.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::train {

/// The prompt and `count` tokens more, drawn at temperature 0.5 from the likeliest nine tenths: a model of minutes
/// spells words right only where it is sure. Blocking. Determinism: weights, prompt and seed decide.
inline std::string sample_text(exec::Context& context, nn::Gpt2Weights const& weights, data::Tokenizer const& tokenizer,
                               std::string const& prompt, std::int64_t count, std::uint64_t seed) {
  infer::Gpt2Decoder decoder(context, weights);
  infer::Sampler sampler({.temperature = 0.5, .top_p = 0.9, .seed = seed});
  std::vector<std::int32_t> text{tokenizer.end_of_text()};
  tokenizer.encode_to(text, prompt);
  std::vector<std::int32_t> made;
  infer::generate(decoder, sampler, text, count, -1, [&](std::int32_t token) {
    if (token < tokenizer.vocabulary()) made.push_back(token);
  });
  return prompt + tokenizer.decode(made);
}

}  // namespace tutti::train
