// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/chat_template.hpp>

#include "support/catch.hpp"

using namespace tutti;
using data::ChatFormat;
using Messages = std::vector<data::ChatMessage>;

namespace {
Messages const talk = {{"system", "S"}, {"user", "A"}, {"assistant", "B"}, {"user", "C"}};
std::string rendered(ChatFormat format, Messages const& messages = talk) {
  return data::render_chat({format, "", ""}, messages);
}
}  // namespace

TEST_CASE("each format writes a conversation as its models expect it") {
  CHECK(rendered(ChatFormat::chatml) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
        "<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n");
  CHECK(rendered(ChatFormat::llama2) == "[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]");
  CHECK(
      rendered(ChatFormat::llama3) ==
      "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nC<|eot_"
      "id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(rendered(ChatFormat::phi3) ==
        "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n");
  CHECK(rendered(ChatFormat::zephyr) ==
        "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n<|assistant|>\n");
  CHECK(rendered(ChatFormat::gemma) ==
        "<start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
        "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n");
  CHECK(rendered(ChatFormat::mistral) == "[INST] S\n\nA [/INST] B</s>[INST] C [/INST]");
  CHECK(rendered(ChatFormat::mistral, {{"user", "A"}}) == "[INST] A [/INST]");
}

TEST_CASE("a template is recognised by its marks, and what was chosen is said") {
  auto const format = [](std::string_view text) {
    auto const found = data::recognise_chat_template(text);
    return found ? std::string(data::name_of(found->format)) : "none";
  };
  CHECK(format("{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'}}") == "chatml");
  CHECK(format("'<|start_header_id|>' + role + '<|end_header_id|>' ... '<|eot_id|>'") == "llama3");
  CHECK(format("'[INST] ' ... '<<SYS>>'") == "llama2");
  CHECK(format("'[INST] ' + content + ' [/INST]'") == "mistral");
  CHECK(format("'<|user|>' '<|end|>' '<|assistant|>'") == "phi3");
  CHECK(format("'<|user|>\n' + content + eos_token '<|assistant|>'") == "zephyr");
  CHECK(format("'<start_of_turn>' + role ... '<end_of_turn>'") == "gemma");
  CHECK(format("") == "none");
  CHECK(format("'<|im_start|>' '<|im_end|>' '[INST]'") == "none");  // of two families
  auto const smol = data::choose_chat_template(
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>");
  CHECK(test::contains(smol.chosen_by, "<|im_start|>"));
  CHECK(data::render_chat(smol, Messages{{"user", "A"}}) ==
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n");
  CHECK(data::choose_chat_template("unknown", "chatml").chosen_by == "asked for");
  REQUIRE_ERROR(data::choose_chat_template("unknown"), ErrorKind::configuration, "chatml, llama2");
  REQUIRE_ERROR(data::choose_chat_template(""), ErrorKind::configuration, "no chat template");
  REQUIRE_ERROR(data::choose_chat_template("", "jinja"), ErrorKind::configuration, "'jinja'");
}

TEST_CASE("conversations that make no sense are refused") {
  REQUIRE_ERROR(rendered(ChatFormat::chatml, {}), ErrorKind::invalid_argument, "last message");
  REQUIRE_ERROR(rendered(ChatFormat::chatml, {{"tool", "x"}}), ErrorKind::invalid_argument, "'tool'");
  REQUIRE_ERROR(rendered(ChatFormat::chatml, {{"user", "x"}, {"system", "y"}}), ErrorKind::invalid_argument, "behind");
  REQUIRE_ERROR(rendered(ChatFormat::chatml, {{"user", "x"}, {"assistant", "y"}}), ErrorKind::invalid_argument, "last");
  REQUIRE_ERROR(rendered(ChatFormat::gemma, {{"user", "x"}, {"user", "y"}}), ErrorKind::invalid_argument, "turns");
}

TEST_CASE("a whole conversation is what is asked, followed by what is answered, again and again") {
  for (std::size_t i = 0; i < data::chat_format_names.size(); ++i) {
    data::ChatTemplate const chat{static_cast<ChatFormat>(i), "", ""};
    INFO(data::chat_format_names[i]);
    Messages whole = talk;
    whole.push_back({"assistant", "D"});
    auto const pieces = data::render_conversation(chat, whole);
    std::string before;
    std::vector<std::string> answers, asked;
    for (auto const& [text, answer] : pieces) {
      if (answer) asked.push_back(before), answers.push_back(text);
      before += text;
    }
    REQUIRE(answers.size() == 2);
    CHECK(asked[0] == data::render_chat(chat, std::span(whole).first(2)));
    CHECK(asked[1] == data::render_chat(chat, std::span(whole).first(4)));
    CHECK(test::contains(answers[0], "B"));
    CHECK(!test::contains(answers[0], "A"));
    for (std::string const& mark : data::chat_marks(chat.format)) CHECK(test::contains(before + "<|end|><s>", mark));
  }
  CHECK(data::render_conversation({ChatFormat::chatml, "", ""}, Messages{{"user", "A"}, {"assistant", "B"}}) ==
        std::vector<data::ChatPiece>{{"<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n", false},
                                     {"B<|im_end|>", true},
                                     {"\n", false}});
  REQUIRE_ERROR(data::render_conversation({ChatFormat::chatml, "", ""}, Messages{{"user", "A"}}),
                ErrorKind::invalid_argument, "says nothing");
}
