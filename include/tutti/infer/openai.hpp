// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Requests of the OpenAI interface, read and checked, and what writes answers. Without a transport.

#include <tutti/data/chat_template.hpp>
#include <tutti/infer/json_schema.hpp>
#include <tutti/infer/openai_answers.hpp>
#include <tutti/infer/openai_embeddings.hpp>
#include <tutti/infer/openai_keys.hpp>
#include <tutti/infer/service.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti::infer::openai {

/// What a request asks beside what the service needs to know.
struct Call {
  Request request;
  bool stream = false, usage = false;  ///< usage: with a stream, a last event has the counts
  /// Texts whose mean hidden states are to be the request's StopOptions::meanings.
  std::vector<std::string> meanings{};
};

namespace detail {

/// The text under a key; empty where there is none.
inline std::string text_at(Json const& object, char const* key) {
  auto const found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// A string, or parts of which each is a text.
inline std::string content_of(Json const& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse("a message's 'content' must be a string or a list of texts");
  std::string text;
  for (Json const& part : content) {
    if (!part.is_object() || text_at(part, "type") != "text" || !part.contains("text") || !part["text"].is_string())
      refuse("a part of a message is not of type 'text'. This server takes texts alone");
    text += part["text"].get<std::string>();
  }
  return text;
}

/// The schema of a body whose `format` is that of a JSON schema, with members in the order in which they were written.
inline std::string schema_of(std::string_view body, Json const& format) {
  std::string const unordered = format["json_schema"]["schema"].dump();
  if (unordered.size() > most_schema_bytes) return unordered;  // to be refused; its order would take long
  using Ordered = nlohmann::ordered_json;
  auto const document = Ordered::parse(body.begin(), body.end(), [](int depth, auto event, Ordered const& key) {
    return event != Ordered::parse_event_t::key || depth != 1 || key == "response_format";
  });
  return document["response_format"]["json_schema"]["schema"].dump();
}

/// `body` is what keys were read from.
inline void read_common(Keys& keys, std::string_view body, Call& call, data::Tokenizer const& tokenizer,
                        Limits const& limits) {
  Request& r = call.request;
  SamplerOptions& s = r.sampling;
  s.temperature = 1, s.top_k = 0, s.top_p = 1;  // the interface's defaults
  keys.number("temperature", s.temperature, 0, 2);
  keys.number("top_p", s.top_p, 0, 1);
  keys.number("min_p", s.min_p, 0, 1);
  keys.number("top_k", s.top_k, 0, std::numeric_limits<std::int32_t>::max());
  keys.number("typical_p", s.typical_p, 0, 1);
  keys.number("frequency_penalty", s.frequency_penalty, -2, 2);
  keys.number("presence_penalty", s.presence_penalty, -2, 2);
  keys.number("repeat_penalty", s.repeat_penalty, 0.01, 10);
  s.seed = std::random_device{}();
  keys.number("seed", s.seed, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  // What a cache has was rounded otherwise than what is read anew: a seed asks for the same text again.
  r.reuse = keys.find("seed") == nullptr;
  if (keys.find("cache_prompt") != nullptr) r.reuse = keys.flag("cache_prompt");
  std::int64_t most = -1, completion = -1;
  keys.number("max_tokens", most, 0, limits.max_tokens);
  keys.number("max_completion_tokens", completion, 0, limits.max_tokens);
  r.stop.max_tokens = completion >= 0 ? completion : most >= 0 ? most : limits.max_tokens;
  r.stop.ends = end_tokens(tokenizer);
  int answers = 1;
  keys.number("n", answers, 1, 1);
  r.stop.texts = keys.texts("stop");
  call.meanings = keys.texts("stop_meaning");
  keys.number("stop_meaning_threshold", r.stop.meaning_threshold, -1, 1);
  if (Json const* const biases = keys.find("logit_bias")) {
    if (!biases->is_object()) refuse("'logit_bias' must be an object of tokens and numbers");
    for (auto const& [token, bias] : biases->items()) {
      std::int32_t id = -1;
      auto const [end, code] = std::from_chars(token.data(), token.data() + token.size(), id);
      if (code != std::errc{} || end != token.data() + token.size() || id < 0 || id >= tokenizer.vocabulary() ||
          !bias.is_number() || !(std::abs(bias.get<double>()) <= 100))
        refuse("'logit_bias' has '" + token.substr(0, 20) +
               "', which must be a token with a number between -100 and 100");
      float const value = bias.get<float>();
      s.logit_bias.emplace_back(id, value <= -100 ? -INFINITY : value);
    }
  }
  keys.number("priority", r.priority, -1000, 1000);
  r.session = keys.text("session");
  r.grammar = keys.text("grammar");
  call.stream = keys.flag("stream");
  if (Json const* const options = keys.find("stream_options")) {
    if (!options->is_object()) refuse("'stream_options' must be an object");
    call.usage = Keys(*options).flag("include_usage");
  }
  if (Json const* const format = keys.find("response_format")) {
    std::string const type = format->is_object() ? text_at(*format, "type") : "";
    if (!r.grammar.empty() && type != "text") refuse("'grammar' and 'response_format' exclude each other");
    if (type == "json_object") r.grammar = grammar_of_schema("{\"type\":\"object\"}");
    else if (type == "json_schema" && format->contains("json_schema") && (*format)["json_schema"].is_object() &&
             (*format)["json_schema"].contains("schema"))
      r.grammar = grammar_of_schema(schema_of(body, *format));
    else if (type != "text") refuse("'response_format' must be of type text, json_object or json_schema with a schema");
  }
}

inline void want_log_probabilities(Call& call, std::int64_t likeliest) {
  if (call.stream) refuse("'logprobs' is not supported with 'stream'. Leave one of them out");
  call.request.likeliest = likeliest;
}

}  // namespace detail

/// POST /v1/chat/completions. Errors: invalid_argument, with what is wrong.
inline Call read_chat(std::string_view body, data::Tokenizer const& tokenizer, data::ChatTemplate const& chat,
                      Limits const& limits = {}) {
  using namespace detail;
  Json const document = parse(body);
  Keys keys(document);
  Call call;
  Json const& messages = keys.at("messages");
  if (!messages.is_array() || messages.empty() || messages.size() > limits.messages)
    refuse(concat("'messages' must be a list of 1 to ", limits.messages, " messages"));
  std::vector<data::ChatMessage> list;
  for (Json const& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content"))
      refuse("a message must have 'role' and 'content'");
    std::string role = message["role"].get<std::string>();
    if (role == "developer") role = "system";
    list.push_back({role, content_of(message["content"])});
  }
  read_common(keys, body, call, tokenizer, limits);
  std::int64_t likeliest = -1;
  keys.number("top_logprobs", likeliest, 0, std::min<std::int64_t>(20, tokenizer.vocabulary()));
  bool const wanted = keys.flag("logprobs");
  if (likeliest >= 0 && !wanted) refuse("'top_logprobs' needs 'logprobs'");
  if (wanted) want_log_probabilities(call, std::max<std::int64_t>(likeliest, 0));
  keys.finish();
  call.request.prompt = tokenizer.encode_complete(data::render_chat(chat, list), data::Marks::as_tokens);
  return call;
}

/// POST /v1/completions, of one prompt: a text, a list of one text, or its tokens. Errors: invalid_argument.
inline Call read_completion(std::string_view body, data::Tokenizer const& tokenizer, Limits const& limits = {}) {
  using namespace detail;
  Json const document = parse(body);
  Keys keys(document);
  Call call;
  Json const& prompt = keys.at("prompt");
  bool const listed = prompt.is_array() && prompt.size() == 1 && (prompt[0].is_string() || prompt[0].is_array());
  Json const& one = listed ? prompt[0] : prompt;
  if (one.is_string()) {
    call.request.prompt = tokenizer.encode_complete(one.get<std::string>());
  } else {
    if (!one.is_array() || one.empty() || one[0].is_string())
      refuse("'prompt' must be one string, a list of one, or a list of tokens");
    for (Json const& token : one) {
      bool const known = token.is_number_integer() && token >= 0 && token < tokenizer.vocabulary();
      if (!known) refuse(concat("'prompt' has ", token.dump().substr(0, 20), ", which is no token of the model"));
      call.request.prompt.push_back(token.get<std::int32_t>());
    }
  }
  read_common(keys, body, call, tokenizer, limits);
  std::int64_t likeliest = -1;
  keys.number("logprobs", likeliest, 0, std::min<std::int64_t>(5, tokenizer.vocabulary()));
  if (likeliest >= 0) want_log_probabilities(call, likeliest);
  keys.finish();
  return call;
}

}  // namespace tutti::infer::openai
