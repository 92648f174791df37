// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/tokenizer_json.hpp>
#include <tutti/data/vocabulary.hpp>

#include "support/catch.hpp"

#include <cstdio>
#include <limits>
#include <map>
#include <random>

using namespace tutti;
using Ids = std::vector<std::int32_t>;

namespace {

/// <unk> <s> </s>, 256 bytes, then `pieces` with their scores.
data::GgufVocabulary characters(std::vector<std::pair<std::string, float>> const& pieces) {
  data::GgufVocabulary from;
  from.model = "llama";
  from.tokens = {"<unk>", "<s>", "</s>"};
  from.types = {2, 3, 3};
  char name[8];
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    from.tokens.emplace_back(name);
    from.types.push_back(6);
  }
  from.scores.assign(from.tokens.size(), 0);
  for (auto const& [text, score] : pieces) {
    from.tokens.push_back(text);
    from.scores.push_back(score);
    from.types.push_back(1);
  }
  return from;
}

/// The definition: among all neighbours whose concatenation is a token take that of the highest score, the leftmost
/// one.
Ids naive(data::GgufVocabulary const& from, std::string const& text) {
  std::map<std::string, std::size_t> known;
  for (std::size_t id = 259; id < from.tokens.size(); ++id) known.emplace(from.tokens[id], id);
  std::string spaced = text.empty() ? "" : "\u2581";
  for (char const c : text) c == ' ' ? spaced += "\u2581" : spaced += c;
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < spaced.size();) {
    std::size_t const length = std::max<std::size_t>(data::utf8_front(std::string_view(spaced).substr(at)).length, 1);
    parts.push_back(spaced.substr(at, length));
    at += length;
  }
  for (;;) {
    std::size_t best = parts.size();
    float score = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (auto const found = known.find(parts[i] + parts[i + 1]);
          found != known.end() && from.scores[found->second] > score) {
        best = i;
        score = from.scores[found->second];
      }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (std::string const& part : parts)
    if (auto const found = known.find(part); found != known.end())
      ids.push_back(static_cast<std::int32_t>(found->second));
    else
      for (char const byte : part) ids.push_back(3 + static_cast<unsigned char>(byte));
  return ids;
}

data::GgufVocabulary bytes(std::string pre) {
  data::GgufVocabulary from;
  from.model = "gpt2";
  from.pre = std::move(pre);
  for (unsigned byte = 0; byte < 256; ++byte)
    from.tokens.push_back(data::spell_bytes(std::string(1, static_cast<char>(byte))));
  from.tokens.insert(from.tokens.end(), {"\u0120a", "\u0120ab", "<|end|>", "<|user|>"});
  from.merges = {"\u0120 a", "\u0120a b"};
  from.types.assign(260, 1);
  from.types[258] = 3;
  from.types[259] = 4;
  from.bos = from.eos = 258;
  return from;
}

}  // namespace

TEST_CASE("a vocabulary of scores merges what together is a token, the highest score first") {
  auto const from = characters({{"\u2581", -1}, {"a", -2}, {"b", -3}, {"ab", -4}, {"\u2581ab", -5}, {"\u00e9", -6}});
  auto const tokenizer = data::make_tokenizer(from, "x.gguf");
  CHECK(tokenizer.encode("ab ab") == Ids{263, 263});
  CHECK(tokenizer.encode_complete("ab") == Ids{1, 263});
  CHECK(tokenizer.encode("\u00e9\u20ac") == Ids{259, 264, 3 + 0xe2, 3 + 0x82, 3 + 0xac});
  CHECK(tokenizer.decode(tokenizer.encode("\u20ac ab")) == "\u20ac ab");
  CHECK(tokenizer.encode("</s>ab", data::Marks::as_tokens) == Ids{2, 263});
  for (std::int32_t const id : tokenizer.encode("</s><0x41>")) CHECK(id >= 3);
  CHECK(tokenizer.roles().end == 2);
  auto plain = from;
  plain.add_space_prefix = false;
  plain.add_bos = false;
  CHECK(data::make_tokenizer(plain, "x.gguf").encode_complete("ab") == Ids{262});
}

TEST_CASE("a vocabulary of scores agrees with the definition, also where tokens span spaces") {
  std::mt19937 random(4);
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> const letters = {"\u2581", "a", "b", "\u00e9"};
    std::vector<std::pair<std::string, float>> pieces;
    std::map<std::string, int> known;
    for (std::size_t i = 0; i < letters.size(); ++i)  // now and then a character is no token itself
      if (random() % 8 != 0 && known.emplace(letters[i], 0).second) pieces.emplace_back(letters[i], 0.f);
    for (int i = 0; i < 25; ++i) {
      std::string piece;
      for (std::size_t n = 2 + random() % 3; n > 0; --n)
        piece += letters[random() % (round % 2 == 0 ? 4 : 3) + (round % 2 == 0 || piece.empty() ? 0u : 1u)];
      if (known.emplace(piece, 0).second) pieces.emplace_back(piece, -static_cast<float>(random() % 12));  // with ties
    }
    auto const from = characters(pieces);
    auto const tokenizer = data::make_tokenizer(from, "x.gguf");
    for (int text_round = 0; text_round < 20; ++text_round) {
      std::string text;
      for (std::size_t n = random() % (text_round == 0 ? 200 : 24); n > 0; --n)
        text += std::vector<std::string>{" ", "a", "b", "\u00e9", "a", "z", "\xff"}[random() % 7];
      INFO(text);
      REQUIRE(tokenizer.encode(text) == naive(from, text));
      // Spaces without a token of their own are the bytes of U+2581 and come back as those.
      if (known.contains("\u2581")) REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("a vocabulary of bytes has the pre-tokenizer that it names") {
  auto const tokenizer = data::make_tokenizer(bytes("smollm"), "x.gguf");
  CHECK(tokenizer.patterns().size() == 2);
  CHECK(tokenizer.encode(" ab a") == Ids{257, 256});
  CHECK(tokenizer.encode(" a<|user|><|end|>", data::Marks::as_tokens) == Ids{256, 259, 258});
  auto const as_text = tokenizer.encode(" a<|user|><|end|>");
  CHECK((as_text[1] == 259 && as_text.size() == 2 + 7));  // a control token is text, a word of the user is not
  CHECK(tokenizer.decode(as_text) == " a<|user|><|end|>");
  CHECK(tokenizer.encode_complete("a").size() == 1);
  CHECK(data::make_tokenizer(bytes("llama-bpe"), "x.gguf").encode_complete("a") == Ids{258, 'a'});
  REQUIRE_ERROR(data::make_tokenizer(bytes("other"), "x.gguf"), ErrorKind::format, "Known are");
}

TEST_CASE("a byte that a GGUF file has no token for is dropped, as llama.cpp does") {
  data::GgufVocabulary from = bytes("gpt-2");
  from.tokens[255] = "unused";
  from.unknown = 258;
  CHECK(data::make_tokenizer(from, "x.gguf")
            .encode("a\xff"
                    "b") == Ids{'a', 'b'});
}

TEST_CASE("an alphabet that was learned from text goes through tokenizer.json: what it lacks is dropped there too") {
  data::GgufVocabulary from = bytes("gpt-2");
  from.unknown = 258;
  std::string const lacks = "\x04\x1d\xf1";  // as SmolLM2's, beside the bytes that no text has
  for (unsigned byte = 0; byte < 256; ++byte)
    if (byte == 0xc0 || byte == 0xc1 || byte >= 0xf5 || lacks.find(static_cast<char>(byte)) != lacks.npos) {
      from.tokens[byte] = "unused" + std::to_string(byte);
      from.types[byte] = 5;
    }
  auto const first = data::make_tokenizer(from, "x.gguf");
  std::string const json = data::tokenizer_to_json(first);
  CHECK(nlohmann::json::parse(json)["model"]["unk_token"].is_null());
  auto const second = data::parse_tokenizer(json, "tokenizer.json");
  for (std::string const text : {"ab \u00e9 \u20ac 12", "a\x04z", "\xf1\x80\x80\x80 \x1d", ""})
    CHECK(second.encode(text) == first.encode(text));
  CHECK(second.encode("a\x04z") == Ids{'a', 'z'});
  CHECK(data::tokenizer_to_json(second) == json);
  // One that lacks a byte and has those that no text has is damaged.
  from = bytes("gpt-2");
  from.tokens[4] = "unused";
  from.types[4] = 5;
  REQUIRE_ERROR(data::tokenizer_to_json(data::make_tokenizer(from, "x.gguf")), ErrorKind::format,
                "byte 4 has no token");
}

TEST_CASE("damaged vocabularies are refused with the file's name") {
  auto const refused = [](auto&& change, std::string const& part, bool scores = false) {
    data::GgufVocabulary from = scores ? characters({{"\u2581", -1}, {"a", -2}}) : bytes("gpt-2");
    change(from);
    REQUIRE_ERROR(data::make_tokenizer(from, "some.gguf"), ErrorKind::format, part);
    REQUIRE_ERROR(data::make_tokenizer(from, "some.gguf"), ErrorKind::format, "some.gguf");
  };
  using V = data::GgufVocabulary;
  refused([](V& v) { v.model = "bert"; }, "'bert'");
  refused([](V& v) { v.tokens.clear(); }, "0 tokens");
  refused([](V& v) { v.types.pop_back(); }, "259 types for 260");
  refused([](V& v) { v.types[0] = 9; }, "type 9");
  refused([](V& v) { v.tokens[257] = "a b"; }, "token 257");
  refused([](V& v) { v.merges[1] = "ab"; }, "merge 1");
  refused([](V& v) { v.merges.push_back(v.merges[0]); }, "twice");
  refused([](V& v) { v.merges.push_back("a b"); }, "lacks");
  refused([](V& v) { v.bos = 260; }, "260");
  refused([](V& v) { v.scores.clear(); }, "0 scores", true);
  refused([](V& v) { v.scores[5] = std::nanf(""); }, "no number", true);
  refused([](V& v) { v.tokens[4] = "<0xZZ>"; }, "does not name one", true);
  refused([](V& v) { v.eot = -1; }, "-1", true);
}
