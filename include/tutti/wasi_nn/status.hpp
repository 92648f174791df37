// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What outputs of an execution context say of its last answer.

#include <tutti/core/concat.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/version.hpp>

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tutti::wasi_nn {

/// Output 1. Guests that were written for WasmEdge look for a build of llama.cpp too: there is none, and the commit
/// says what there is.
inline std::string usage(std::size_t input_tokens, std::size_t output_tokens) {
  return nlohmann::json{{"input_tokens", input_tokens},
                        {"output_tokens", output_tokens},
                        {"llama_build_number", 0},
                        {"llama_commit", concat("tutti ", version_major, ".", version_minor, ".", version_patch)}}
      .dump();
}

/// Output 0 of an embedding: ten significant digits, as WasmEdge writes them.
inline std::string embedding_text(std::span<float const> values) {
  std::string text = concat(R"({"n_embedding":)", values.size(), R"(,"embedding":[)");
  for (std::size_t i = 0; i < values.size(); ++i) {
    char digits[32];
    auto const end = std::to_chars(digits, digits + sizeof digits, static_cast<double>(values[i]),
                                   std::chars_format::general, 10);
    if (i > 0) text += ',';
    if (std::isfinite(values[i])) text.append(digits, end.ptr);
    else text += "null";
  }
  return text += "]}";
}

/// Adds to `json` why the answer ended, its counts and times; with `likeliest` above 0 the log-probability of every
/// token, and of the likeliest beside it.
inline void describe(infer::Completion const& answer, data::Tokenizer const& tokenizer, std::int64_t likeliest,
                     nlohmann::json& json) {
  json["stop_reason"] = std::string(name(answer.reason));
  json["input_tokens"] = answer.prompt_tokens;
  json["cached_tokens"] = answer.reused_tokens;
  json["output_tokens"] = answer.tokens.size();
  json["prompt_seconds"] = answer.prompt_seconds;
  json["seconds"] = answer.seconds;
  json["context_shifts"] = answer.shifts;
  if (likeliest <= 0) return;
  auto const text = [&](std::int32_t id) {
    return id < tokenizer.vocabulary() ? tokenizer.token_bytes(id) : std::string();
  };
  for (infer::TokenLogProbability const& one : answer.log_probabilities) {
    nlohmann::json top = nlohmann::json::array();
    for (auto const& [id, value] : one.top) top.push_back({{"id", id}, {"token", text(id)}, {"logprob", value}});
    json["log_probabilities"].push_back(
        {{"id", one.token}, {"token", text(one.token)}, {"logprob", one.value}, {"top", std::move(top)}});
  }
}

}  // namespace tutti::wasi_nn
