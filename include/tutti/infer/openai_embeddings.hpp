// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Requests for embeddings of the OpenAI interface, and vectors as it writes them.

#include <tutti/core/concat.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/generation.hpp>
#include <tutti/infer/openai_keys.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer::openai {

/// An embeddings request: its inputs, and how vectors are written.
struct Embeddings {
  std::vector<Request> requests;
  bool base64 = false;  ///< as the bytes of float32, least significant first: what OpenAI's client asks for by itself
};

/// POST /v1/embeddings: a request for every input. Errors: invalid_argument.
inline Embeddings read_embeddings(std::string_view body, data::Tokenizer const& tokenizer, Limits const& limits = {}) {
  using namespace detail;
  Json const document = parse(body);
  Keys keys(document);
  Json const& input = keys.at("input");
  std::string const format = keys.text("encoding_format");
  if (!format.empty() && format != "float" && format != "base64") refuse("'encoding_format' must be float or base64");
  keys.finish();
  std::vector<std::string> texts;
  if (input.is_string()) texts.push_back(input.get<std::string>());
  else if (input.is_array() && !input.empty() && input.size() <= limits.inputs)
    for (Json const& text : input) {
      if (!text.is_string()) refuse("'input' must be a string or a list of strings");
      texts.push_back(text.get<std::string>());
    }
  else refuse(concat("'input' must be a string or a list of 1 to ", limits.inputs, " strings"));
  Embeddings result;
  result.base64 = format == "base64";
  for (std::string const& text : texts) {
    Request request;
    request.prompt = tokenizer.encode_complete(text);
    if (request.prompt.empty()) refuse("an input is empty");
    request.embed = true;
    result.requests.push_back(std::move(request));
  }
  return result;
}

/// A vector as `Embeddings` says.
inline nlohmann::json embedding_value(std::span<float const> vector, bool base64) {
  if (!base64) return std::vector<float>(vector.begin(), vector.end());
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static_assert(std::endian::native == std::endian::little);
  std::span<std::byte const> const bytes = std::as_bytes(vector);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? digits[three >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace tutti::infer::openai
