// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Conversations as the text that a model was trained on. A fixed set of templates, recognised by marks in the text of
/// a model's own template; there is no engine for templates in general.

#include <tutti/core/error.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

enum class ChatFormat : unsigned char { chatml, llama2, llama3, phi3, zephyr, gemma, mistral };

inline constexpr std::array<std::string_view, 7> chat_format_names = {"chatml", "llama2", "llama3", "phi3",
                                                                      "zephyr", "gemma",  "mistral"};
inline std::string_view name_of(ChatFormat format) noexcept {
  return chat_format_names[static_cast<std::size_t>(format)];
}

/// `role` is "system", "user" or "assistant".
struct ChatMessage {
  std::string role, content;
};

/// ChatML as a template of models: what other programs run.
inline constexpr std::string_view chatml_template =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// What was chosen, and why, for logs and status.
struct ChatTemplate {
  ChatFormat format = ChatFormat::chatml;
  std::string default_system;  ///< put first where a conversation has no system message; empty: nothing
  std::string chosen_by;       ///< a phrase for people
};

/// The format whose marks stand in `text`, a model's own template; nothing when they are of none or of several
/// families.
inline std::optional<ChatTemplate> recognise_chat_template(std::string_view text) {
  auto const has = [&](std::string_view mark) { return text.find(mark) != std::string_view::npos; };
  std::vector<std::pair<ChatFormat, std::string>> found;
  if (has("<|im_start|>") && has("<|im_end|>")) found.emplace_back(ChatFormat::chatml, "<|im_start|>");
  if (has("<|start_header_id|>") && has("<|eot_id|>")) found.emplace_back(ChatFormat::llama3, "<|start_header_id|>");
  if (has("<start_of_turn>") && has("<end_of_turn>")) found.emplace_back(ChatFormat::gemma, "<start_of_turn>");
  if (has("[INST]"))
    found.emplace_back(has("<<SYS>>") ? ChatFormat::llama2 : ChatFormat::mistral,
                       has("<<SYS>>") ? "<<SYS>>" : "[INST]");
  if (has("<|assistant|>") && has("<|end|>")) found.emplace_back(ChatFormat::phi3, "<|end|>");
  else if (has("<|assistant|>") && has("<|user|>") && (has("eos_token") || has("</s>")))
    found.emplace_back(ChatFormat::zephyr, "<|user|>");
  if (found.size() != 1) return std::nullopt;
  ChatTemplate result{found[0].first, "", "the model's template has the mark " + found[0].second};
  if (result.format == ChatFormat::chatml)
    for (std::string_view const system :
         {"You are a helpful AI assistant named SmolLM, trained by Hugging Face",
          "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "You are a helpful assistant."})
      if (result.default_system.empty() && has(system)) result.default_system = system;
  return result;
}

/// The template to use: the format that the user names, else the one recognised in `model_template`.
/// Errors: configuration, when the name is unknown or nothing is recognised; ChatML is never guessed.
inline ChatTemplate choose_chat_template(std::string_view model_template, std::string_view wanted = {}) {
  std::string known;
  for (std::string_view const name : chat_format_names) (known += known.empty() ? "" : ", ") += name;
  for (std::size_t i = 0; i < chat_format_names.size(); ++i)
    if (chat_format_names[i] == wanted) return {static_cast<ChatFormat>(i), "", "asked for"};
  if (!wanted.empty())
    throw Error(ErrorKind::configuration, "choose_chat_template",
                "there is no chat template '" + std::string(wanted.substr(0, 40)) + "'. Use one of " + known);
  if (auto recognised = recognise_chat_template(model_template)) return *recognised;
  throw Error(ErrorKind::configuration, "choose_chat_template",
              std::string("the model ") +
                  (model_template.empty() ? "has no chat template" : "has a chat template that is not known") +
                  ". Name the one to use: " + known);
}

/// Marks of a format that are tokens of their own in the vocabularies of its models.
inline std::vector<std::string> chat_marks(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml: return {"<|im_start|>", "<|im_end|>"};
    case ChatFormat::llama2: return {"<s>", "</s>"};
    case ChatFormat::llama3: return {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatFormat::phi3: return {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"};
    case ChatFormat::zephyr: return {"<|system|>", "<|user|>", "<|assistant|>", "</s>"};
    case ChatFormat::gemma: return {"<start_of_turn>", "<end_of_turn>"};
    case ChatFormat::mistral: return {"</s>"};
  }
  return {};
}

/// A stretch of a conversation as text. Those of the assistant are its words with the mark that ends its turn: what a
/// model is to write by itself.
struct ChatPiece {
  std::string text;
  bool answer = false;

  friend bool operator==(ChatPiece const&, ChatPiece const&) = default;
};

namespace detail {

/// Errors: invalid_argument, as of render_chat.
[[noreturn]] inline void refuse_chat(std::string const& why) {
  throw Error(ErrorKind::invalid_argument, "render_chat",
              why + ". Give messages of system (first), user and assistant in the order of the conversation");
}

/// All turns; neighbouring pieces are of different kinds.
inline std::vector<ChatPiece> render_turns(ChatTemplate const& chat, std::span<ChatMessage const> messages) {
  std::string system = chat.default_system;
  bool user_next = true;
  bool const own_turn =
      chat.format != ChatFormat::llama2 && chat.format != ChatFormat::mistral && chat.format != ChatFormat::gemma;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto const& [role, content] = messages[i];
    if (role == "system") {
      if (i != 0) refuse_chat("a system message stands behind others");
      system = content;
      continue;
    }
    if (role != "user" && role != "assistant") refuse_chat("the role '" + role.substr(0, 40) + "' is unknown");
    bool const user = role == "user";
    if (!own_turn && user != user_next) refuse_chat("user and assistant do not take turns");
    user_next = !user;
  }
  std::vector<ChatPiece> pieces;
  auto const put = [&](std::string text, bool answer) {
    if (text.empty()) return;
    if (pieces.empty() || pieces.back().answer != answer) pieces.push_back({"", answer});
    pieces.back().text += text;
  };
  auto const turn = [&](std::string const& role, std::string const& content) {
    bool const answer = role == "assistant";
    auto const around = [&](std::string front, std::string end, std::string behind = "") {
      put(std::move(front), false), put(content + std::move(end), answer), put(std::move(behind), false);
    };
    switch (chat.format) {
      case ChatFormat::chatml: return around("<|im_start|>" + role + "\n", "<|im_end|>", "\n");
      case ChatFormat::llama3: return around("<|start_header_id|>" + role + "<|end_header_id|>\n\n", "<|eot_id|>");
      case ChatFormat::phi3: return around("<|" + role + "|>\n", "<|end|>", "\n");
      case ChatFormat::zephyr: return around("<|" + role + "|>\n", "</s>", "\n");
      case ChatFormat::gemma:
        return around("<start_of_turn>" + std::string(answer ? "model" : "user") + "\n", "<end_of_turn>", "\n");
      case ChatFormat::llama2:
        if (answer) return put(" " + content + " </s>", true);
        return around(std::string(pieces.empty() ? "" : "<s>") + "[INST] ", " [/INST]");
      case ChatFormat::mistral:
        if (answer) return put(" " + content + "</s>", true);
        return around("[INST] ", " [/INST]");
    }
  };
  if (own_turn && !system.empty()) turn("system", system);
  bool first = true;
  for (ChatMessage const& message : messages) {
    if (message.role == "system") continue;
    bool const with_system = std::exchange(first, false) && !own_turn && !system.empty();
    if (!with_system) turn(message.role, message.content);
    else if (chat.format == ChatFormat::llama2) turn("user", "<<SYS>>\n" + system + "\n<</SYS>>\n\n" + message.content);
    else turn("user", system + "\n\n" + message.content);
  }
  return pieces;
}

}  // namespace detail

/// The text of a conversation, ready for an answer of the assistant. Marks in it are tokens: encode it with
/// `Marks::as_tokens`; the begin-of-text token is left to `Tokenizer::encode_complete`.
/// Errors: invalid_argument, for an unknown role, a system message behind others, or turns that do not alternate where
/// the format needs it.
inline std::string render_chat(ChatTemplate const& chat, std::span<ChatMessage const> messages) {
  std::string text;
  for (ChatPiece const& piece : detail::render_turns(chat, messages)) text += piece.text;
  if (messages.empty() || messages.back().role != "user") detail::refuse_chat("the last message is not the user's");
  switch (chat.format) {
    case ChatFormat::chatml: return text + "<|im_start|>assistant\n";
    case ChatFormat::llama3: return text + "<|start_header_id|>assistant<|end_header_id|>\n\n";
    case ChatFormat::phi3:
    case ChatFormat::zephyr: return text + "<|assistant|>\n";
    case ChatFormat::gemma: return text + "<start_of_turn>model\n";
    default: return text;
  }
}

/// A whole conversation, to learn from: its text in pieces, whose answers are what render_chat is to be followed by.
/// Errors: as of render_chat; invalid_argument, where the assistant says nothing.
inline std::vector<ChatPiece> render_conversation(ChatTemplate const& chat, std::span<ChatMessage const> messages) {
  std::vector<ChatPiece> pieces = detail::render_turns(chat, messages);
  for (ChatPiece const& piece : pieces)
    if (piece.answer) return pieces;
  throw Error(ErrorKind::invalid_argument, "render_conversation",
              "the assistant says nothing, so there is nothing to learn. Give a conversation with its answers");
}

}  // namespace tutti::data
