// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/data/compiled_pattern.hpp>
// Covers: <tutti/data/piece_scanner.hpp>
#include <tutti/data/pre_tokenizer.hpp>

#include "support/catch.hpp"

#include <random>
#include <vector>

using namespace tutti;

namespace {
using Pieces = std::vector<std::string>;
Pieces split(std::string_view text, std::string_view pattern = data::gpt2_pattern) {
  Pieces pieces;
  data::PreTokenizer(pattern).split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}
std::string joined(Pieces const& pieces) {
  std::string text;
  for (auto const& piece : pieces) text += piece;
  return text;
}
}  // namespace

TEST_CASE("GPT-2's pattern cuts as published") {
  CHECK(split("") == Pieces{});
  CHECK(split("Hello world") == Pieces{"Hello", " world"});
  CHECK(split("it's we'll don't I'D") == Pieces{"it", "'s", " we", "'ll", " don", "'t", " I", "'", "D"});
  CHECK(split("a1b22 333") == Pieces{"a", "1", "b", "22", " 333"});
  CHECK(split("x  y") == Pieces{"x", " ", " y"});
  CHECK(split("x \n\n y") == Pieces{"x", " \n\n", " y"});
  CHECK(split("end   ") == Pieces{"end", "   "});
  CHECK(split("?!... (a)") == Pieces{"?!...", " (", "a", ")"});
  CHECK(split("na\u00efve \u4e2d\u6587 \u0663\u0664") == Pieces{"na\u00efve", " \u4e2d\u6587", " \u0663\u0664"});
  CHECK(split("a\u00a0b") == Pieces{"a", "\u00a0", "b"});  // a no-break space is a space but not the space
  CHECK(split("a\u0085 b") == Pieces{"a", "\u0085", " b"});
  CHECK(split("a\u180eb") == Pieces{"a", "\u180e", "b"});  // no space: Unicode took the property away
  CHECK(split("\u2003\u180e") == Pieces{"\u2003", "\u180e"});
  CHECK(split(std::string_view("a\0b", 3)) == Pieces{"a", std::string(1, '\0'), "b"});
}

TEST_CASE("pieces together are the text, whatever its bytes") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 200, '\0');
    for (char& byte : text)
      byte = round % 3 == 0   ? static_cast<char>(random())
             : round % 3 == 1 ? "ab \n\t'1\xc3\xa9\xff\xe2"[random() % 11]
                              : static_cast<char>(0x20 + random() % 0x60);
    Pieces const pieces = split(text);
    REQUIRE(joined(pieces) == text);
    for (auto const& piece : pieces) REQUIRE(!piece.empty());
  }
}

TEST_CASE("bytes that are not UTF-8 are pieces of their own") {
  CHECK(split("ab\xff\xfe"
              "cd") == Pieces{"ab", "\xff\xfe", "cd"});
  CHECK(split("\xc3") == Pieces{"\xc3"});
  CHECK(split("a \xe2\x82 b") == Pieces{"a", " ", "\xe2\x82", " b"});
}

TEST_CASE("other patterns, with stretches that match nothing and matches of nothing") {
  CHECK(split("a,b,,c", "[a-z]") == Pieces{"a", ",", "b", ",,", "c"});
  CHECK(split("\u00e9a\u00e9", "a*") == Pieces{"\u00e9", "a", "\u00e9"});
  CHECK(split("12345", "\\p{N}{1,3}") == Pieces{"123", "45"});
  CHECK(split("a b\u2003c", "[^\\s]+|\\S") == Pieces{"a", " ", "b", "\u2003", "c"});
  CHECK(split("xyz", "q") == Pieces{"xyz"});
  REQUIRE_ERROR(data::PreTokenizer("(a"), ErrorKind::format, "(a");
  REQUIRE_ERROR(data::PreTokenizer("\\p{Nonsense}"), ErrorKind::format, "Nonsense");
}

TEST_CASE("very long runs are cut, and a pattern that explodes is an error") {
  for (std::string const unit : {"a", " ", "-", "1", "\n", "\u4e2d"}) {
    std::string text;
    for (int i = 0; i < 300000; ++i) text += unit;
    CHECK(joined(split("x" + text + "y")).size() == text.size() + 2);
  }
  REQUIRE_ERROR(split(std::string(60, 'a') + "!", "(?:a+)+b|(?:a|aa)+$"), ErrorKind::unavailable, "gave up");
}

TEST_CASE("scanners written by hand cut as the engine does") {
  using Patterns = std::vector<std::string>;
  std::vector<Patterns> const known = {{std::string(data::gpt2_pattern)},
                                       {std::string(data::digit_pattern), std::string(data::gpt2_pattern)},
                                       {std::string(data::qwen2_pattern)},
                                       {std::string(data::llama3_pattern)},
                                       {std::string(data::cl100k_pattern)}};
  std::mt19937 random(5);
  std::vector<std::string> characters = {
      "a",      "Z",      "s",      "S",          "t",      "l",      "L",      "v",
      "r",      "e",      "E",      "'",          "'",      " ",      " ",      "\n",
      "\r",     "\t",     "\v",     "1",          "7",      ".",      "-",      "\u00e9",
      "\u4e2d", "\u0663", "\u00bd", "\u0301",     "\u00a0", "\u0085", "\u2003", "\u3000",
      "\u180e", "\u017f", "\u212a", "\U0001F600", "\u200b", "\u2028", "_",      std::string(1, '\0')};
  // The tables may know characters that the engine's older Unicode does not: those are left out.
  for (int tries = 0; tries < 4000; ++tries) {
    auto const code = static_cast<char32_t>(random() % (tries % 4 == 0 ? 0x110000 : 0x3000));
    std::string text = "x";
    if (code >= 0xD800 && code < 0xE000) continue;
    data::append_utf8(text, code);
    if (split(text, "x\\P{Cn}|x").size() == 1) characters.push_back(text.substr(1));
  }
  REQUIRE(characters.size() > 2000);
  for (Patterns const& patterns : known) {
    REQUIRE(data::detail::PieceScanner::of(patterns));
    data::PreTokenizer const by_hand(patterns), by_engine(patterns, data::Scanning::by_engine);
    for (int round = 0; round < 4000; ++round) {
      std::string text;
      std::size_t const length = random() % 30, few = round % 3 == 0 ? characters.size() : round % 3 == 1 ? 40 : 24;
      for (std::size_t i = 0; i < length; ++i) text += characters[random() % few];
      if (round % 7 == 0 && !text.empty()) text[random() % text.size()] = static_cast<char>(random());
      Pieces a, b;
      by_hand.split(text, [&](std::string_view piece) { a.emplace_back(piece); });
      by_engine.split(text, [&](std::string_view piece) { b.emplace_back(piece); });
      INFO(patterns.back() << " on " << text);
      REQUIRE(a == b);
      REQUIRE(joined(a) == text);
    }
  }
  CHECK(!data::detail::PieceScanner::of({"a"}));
}

TEST_CASE("patterns apply one after another, none leaves the text whole") {
  auto const cut = [](std::vector<std::string> const& patterns, std::string_view text) {
    Pieces pieces;
    data::PreTokenizer(patterns).split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
  };
  CHECK(cut({}, "ab c") == Pieces{"ab c"});
  CHECK(cut({"[0-9]", " ?[a-z]+"}, "ab 12 c") == Pieces{"ab", " ", "1", "2", " c"});
  CHECK(cut({std::string(data::digit_pattern), std::string(data::gpt2_pattern)}, "x  12") ==
        Pieces{"x", "  ", "1", "2"});
}

TEST_CASE("pre-tokenizers have names, and an unknown one is refused with those that are known") {
  CHECK(data::patterns_named("gpt-2").patterns == std::vector<std::string>{std::string(data::gpt2_pattern)});
  CHECK(data::patterns_named("smollm").patterns.size() == 2);
  CHECK(data::patterns_named("qwen2").patterns[0] == data::qwen2_pattern);
  CHECK(data::patterns_named("llama-bpe").whole_pieces);
  CHECK(data::patterns_named("llama-bpe").begin);
  CHECK(!data::patterns_named("dbrx").whole_pieces);
  Pieces pieces;
  data::PreTokenizer(data::patterns_named("default").patterns).split("it's 12345 <a>", [&](std::string_view piece) {
    pieces.emplace_back(piece);
  });
  CHECK(pieces == Pieces{"it", "'", "s", " ", "123", "45", " ", "<", "a", ">"});
  for (char const* name : {"", "gpt", "gpt-2 phi-2", "gpt-5"}) {
    REQUIRE_ERROR(data::patterns_named(name), ErrorKind::format, "Known are gpt-2 phi-2");
    REQUIRE_ERROR(data::patterns_named(name), ErrorKind::format, "smollm");
  }
}
