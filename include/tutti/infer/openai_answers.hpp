// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Answers of the OpenAI interface: whole, as events of a stream, and errors.

#include <tutti/infer/openai_log_probabilities.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::infer::openai {

/// Writes answers of one request.
class Writer {
 public:
  /// Borrows the tokenizer.
  Writer(std::string id, std::string model, data::Tokenizer const& tokenizer, bool chat)
      : id_(std::move(id)),
        model_(std::move(model)),
        tokenizer_(&tokenizer),
        chat_(chat),
        created_(static_cast<std::int64_t>(std::time(nullptr))) {}

  /// `likely`: with the log-probabilities.
  std::string whole(Completion const& answer, bool likely) const {
    detail::Json choice = {{"index", 0}, {"finish_reason", finish(answer.reason)}, {"logprobs", nullptr}};
    if (likely)
      choice["logprobs"] = chat_ ? detail::chat_log_probabilities(answer, *tokenizer_)
                                 : detail::log_probability_lists(answer, *tokenizer_);
    if (chat_) choice["message"] = {{"role", "assistant"}, {"content", answer.text}};
    else choice["text"] = answer.text;
    return dump(head(chat_ ? "chat.completion" : "text_completion", {choice}, &answer));
  }
  /// An event of a stream.
  std::string piece(std::string_view text, bool first) const {
    detail::Json choice = {{"index", 0}, {"finish_reason", nullptr}};
    if (chat_) {
      choice["delta"] = {{"content", text}};
      if (first) choice["delta"]["role"] = "assistant";
    } else {
      choice["text"] = text;
    }
    return event(head(object(), {choice}, nullptr));
  }
  /// The last events: why it ended, the counts where they are asked for, and the mark.
  std::string last(Completion const& answer, bool usage) const {
    detail::Json choice = {{"index", 0}, {"finish_reason", finish(answer.reason)}};
    if (chat_) choice["delta"] = detail::Json::object();
    else choice["text"] = "";
    std::string text = event(head(object(), {choice}, nullptr));
    if (usage) text += event(head(object(), detail::Json::array(), &answer));
    return text + "data: [DONE]\n\n";
  }
  static std::string event(detail::Json const& document) { return "data: " + dump(document) + "\n\n"; }
  /// Texts of a model are not always UTF-8.
  static std::string dump(detail::Json const& document) {
    return document.dump(-1, ' ', false, detail::Json::error_handler_t::replace);
  }

 private:
  char const* object() const { return chat_ ? "chat.completion.chunk" : "text_completion"; }
  static char const* finish(StopReason reason) {
    return reason == StopReason::end_of_generation || reason == StopReason::text || reason == StopReason::grammar
               ? "stop"
               : "length";
  }
  detail::Json head(char const* object, detail::Json choices, Completion const* counted) const {
    detail::Json document = {
        {"id", id_}, {"object", object}, {"created", created_}, {"model", model_}, {"choices", std::move(choices)}};
    if (counted != nullptr) {
      auto const drawn = static_cast<std::int64_t>(counted->tokens.size());
      document["usage"] = {{"prompt_tokens", counted->prompt_tokens},
                           {"completion_tokens", drawn},
                           {"total_tokens", counted->prompt_tokens + drawn},
                           {"prompt_tokens_details", {{"cached_tokens", counted->reused_tokens}}}};
    }
    return document;
  }

  std::string id_, model_;
  data::Tokenizer const* tokenizer_;
  bool chat_;
  std::int64_t created_;
};

/// An error as clients read it: {"error": {"message", "type", "code"}}.
/// A message that begins with a key, as "'n' must be ...", is of this parameter.
inline std::string error_document(std::string const& message, char const* type) {
  nlohmann::json param;
  if (std::size_t const end = message.find('\'', 1); message.starts_with('\'') && end != message.npos)
    param = message.substr(1, end - 1);
  return Writer::dump({{"error", {{"message", message}, {"type", type}, {"param", param}, {"code", nullptr}}}});
}

}  // namespace tutti::infer::openai
