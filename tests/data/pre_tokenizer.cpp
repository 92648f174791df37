// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
