// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Log-probabilities of an answer, as the OpenAI interface writes them.

#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/openai_keys.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti::infer::openai::detail {

/// The bytes of one token; nothing of a class that the tokenizer does not know.
inline std::string bytes_of(data::Tokenizer const& tokenizer, std::int32_t token) {
  return token < tokenizer.vocabulary() ? tokenizer.token_bytes(token) : std::string();
}
/// Of a chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
inline Json chat_log_probabilities(Completion const& answer, data::Tokenizer const& tokenizer) {
  auto const entry = [&](std::int32_t token, double value) {
    std::string const text = bytes_of(tokenizer, token);
    Json bytes = Json::array();
    for (char const c : text) bytes.push_back(static_cast<unsigned char>(c));
    return Json{{"token", text}, {"logprob", value}, {"bytes", std::move(bytes)}};
  };
  Json content = Json::array();
  for (TokenLogProbability const& one : answer.log_probabilities) {
    Json token = entry(one.token, one.value);
    token["top_logprobs"] = Json::array();
    for (auto const& [id, value] : one.top) token["top_logprobs"].push_back(entry(id, value));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}
/// Of a completion: lists side by side; where each token begins in the answer's text, in characters.
inline Json log_probability_lists(Completion const& answer, data::Tokenizer const& tokenizer) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  std::int64_t offset = 0;
  for (TokenLogProbability const& one : answer.log_probabilities) {
    std::string const text = bytes_of(tokenizer, one.token);
    tokens.push_back(text);
    values.push_back(one.value);
    offsets.push_back(offset);
    offset +=
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    Json top = Json::object();
    for (auto const& [id, value] : one.top)
      top.emplace(bytes_of(tokenizer, id), value);  // of two tokens with one text the likelier
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace tutti::infer::openai::detail
