// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Documents from JSON lines: texts, conversations, and prompts with their completions, each with what of it a model
/// is to learn.

#include <tutti/core/error.hpp>
#include <tutti/data/added_tokens.hpp>
#include <tutti/data/chat_template.hpp>
#include <tutti/data/tokenizer_parts.hpp>
#include <tutti/io/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// Text that is encoded by itself.
struct DocumentPart {
  std::string text;
  bool counts = true;             ///< as targets
  Marks marks = Marks::as_text;   ///< in the text

  friend bool operator==(DocumentPart const&, DocumentPart const&) = default;
};
struct Document {
  std::vector<DocumentPart> parts;
  bool end_counts = true;  ///< whether the end of the document is a target

  friend bool operator==(Document const&, Document const&) = default;
};

struct JsonlOptions {
  std::string field{};               ///< that has a document's text; empty: what an object has, as read_jsonl says
  std::optional<ChatFormat> chat{};  ///< of conversations
  bool count_prompts = false;        ///< prompts are targets too
};

namespace detail {

/// One line.
class JsonlLine {
 public:
  JsonlLine(std::string_view line, std::string place, JsonlOptions const& options)
      : options_(options), place_(std::move(place)), json_(io::parse_json(line, place_, "read_jsonl")) {}

  Document document() const {
    if (!json_.is_object()) refuse("it is no object", "Write one JSON object a line");
    bool const any = options_.field.empty();
    if (any && json_.contains("messages")) return conversation(json_["messages"]);
    if (any && json_.contains("prompt") && json_.contains("completion")) {
      std::string const prompt = text_of(json_, "prompt"), completion = text_of(json_, "completion");
      if (completion.empty()) refuse("its completion is empty", "Give what is to follow the prompt");
      Document document{{{prompt, options_.count_prompts}, {completion, true}}};
      if (prompt.empty()) document.parts.erase(document.parts.begin());
      return document;
    }
    std::string const field = any ? "text" : options_.field;
    if (!json_.contains(field))
      refuse("it has no \"" + field + "\"" + (any ? ", no \"messages\", and no \"prompt\" with \"completion\"" : ""),
             "Name the field of the text (prepare_text --text-field NAME)");
    return {{{text_of(json_, field.c_str()), true}}};
  }

 private:
  [[noreturn]] void refuse(std::string const& why, std::string const& advice) const {
    throw Error(ErrorKind::format, "read_jsonl", "'" + place_ + "' is not usable: " + why + ". " + advice);
  }
  std::string text_of(nlohmann::json const& object, char const* key) const {
    if (!object.contains(key) || !object[key].is_string())
      refuse("its " + std::string(key) + " is not text", "Give a string");
    return object[key].get<std::string>();
  }
  /// A string, or OpenAI's list of parts that are text.
  std::string content_of(nlohmann::json const& message) const {
    if (!message.contains("content") || !message["content"].is_array()) return text_of(message, "content");
    std::string text;
    for (nlohmann::json const& part : message["content"]) {
      if (!part.is_object() || part.value("type", nlohmann::json()) != "text")
        refuse("a part of its content is not text", "Leave out images and sounds: models here read text alone");
      text += text_of(part, "text");
    }
    return text;
  }
  Document conversation(nlohmann::json const& messages) const {
    if (!messages.is_array()) refuse("its messages are no list", R"(Write [{"role": "user", "content": "..."}, ...])");
    if (!options_.chat) {
      std::string known;
      for (std::string_view const name : chat_format_names) (known += known.empty() ? "" : ", ") += name;
      refuse("it is a conversation, and nothing says how to write one as text",
             "Name a chat template (prepare_text --chat-template NAME): " + known + ". chatml suits a new model");
    }
    std::vector<std::string> marks = chat_marks(*options_.chat);
    marks.emplace_back(end_of_text_mark);
    std::vector<ChatMessage> list;
    std::vector<bool> learned;  // of the assistant's messages; OpenAI's "weight" leaves some out
    for (nlohmann::json const& message : messages) {
      if (!message.is_object()) refuse("a message is no object", R"(Write {"role": "user", "content": "..."})");
      ChatMessage const& read = list.emplace_back(ChatMessage{text_of(message, "role"), content_of(message)});
      for (std::string const& mark : marks)
        if (read.content.find(mark) != std::string::npos)
          refuse("a message contains " + mark + ", with which the template marks turns and ends", "Take it out");
      auto const weight = message.value("weight", nlohmann::json(1));
      if (weight != 0 && weight != 1) refuse("a message's weight is neither 0 nor 1", "Leave it out, or give one");
      if (read.role == "assistant") learned.push_back(weight == 1);
    }
    Document document{{}, options_.count_prompts};
    std::size_t answer = 0;
    try {
      for (ChatPiece& piece : render_conversation({*options_.chat, "", ""}, list))
        document.parts.push_back({std::move(piece.text),
                                  piece.answer ? bool{learned[answer++]} : options_.count_prompts, Marks::as_tokens});
    } catch (Error const& error) {
      refuse("its conversation cannot be written: " + error.message(), "Mend or remove the line");
    }
    return document;
  }

  JsonlOptions const& options_;
  std::string place_;
  nlohmann::json json_;
};

}  // namespace detail

/// A document of each line that is not blank. An object has
///   "messages"               a conversation, [{"role": ..., "content": ...}]: answers of the assistant, with the mark
///                            that ends them, are targets; those of "weight" 0, as OpenAI's files have it, are none
///   "prompt", "completion"   one behind the other; the completion and the end of the document are targets
///   "text"                   all of it is a target
/// the first of these that is there; or the options' field, as "text". `source` names the file in messages.
/// Errors: format, naming source and line.
inline std::vector<Document> read_jsonl(std::string_view text, std::string const& source,
                                        JsonlOptions const& options) {
  std::vector<Document> documents;
  io::for_each_json_line(text, [&](std::string_view line, std::int64_t number) {
    documents.push_back(detail::JsonlLine(line, source + ", line " + std::to_string(number), options).document());
    return true;
  });
  return documents;
}

}  // namespace tutti::data
