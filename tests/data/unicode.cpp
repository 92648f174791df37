// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/data/unicode_tables.hpp>
#include <tutti/data/unicode.hpp>

#include "support/catch.hpp"

#include <random>

using namespace tutti;
using data::CharClass;

TEST_CASE("code points go to UTF-8 and back") {
  for (char32_t code : {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    data::append_utf8(text, code);
    CHECK(data::utf8_front(text).length == text.size());
    CHECK(data::decode_utf8(text.data()).value == code);
    CHECK(data::decode_utf8(text.data()).length == text.size());
  }
}

TEST_CASE("characters have the classes of Unicode") {
  auto const* const classes = data::char_classes();
  for (char32_t code : {U'a', U'\u00e9', U'\u4e2d', U'\u02b0', U'\U00010400'})
    CHECK(classes[code] == CharClass::letter);
  for (char32_t code : {U'0', U'\u0663', U'\u00bd', U'\u2167'}) CHECK(classes[code] == CharClass::number);
  for (char32_t code : {U' ', U'\t', U'\u00a0', U'\u2003', U'\u3000'}) CHECK(classes[code] == CharClass::space);
  CHECK(classes[0x85] == CharClass::space);
  for (char32_t code : {U'\n', U'\r'}) CHECK(classes[code] == CharClass::newline);
  for (char32_t code : {U'.', U'\u0301', U'\u180e', U'\u200b', U'\U0001F600', U'\U0010ffff'})
    CHECK(classes[code] == CharClass::other);
  std::size_t letters = 0, numbers = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    letters += classes[code] == CharClass::letter;
    numbers += classes[code] == CharClass::number;
  }
  CHECK(letters == 141028);  // Unicode 16.0.0
  CHECK(numbers == 1911);
}

TEST_CASE("normalization form C composes, orders marks and keeps damaged bytes") {
  using data::normalize_nfc;
  CHECK(normalize_nfc("") == "");
  CHECK(normalize_nfc("plain") == "plain");
  CHECK(normalize_nfc("e\u0301a\u0308") == "\u00e9\u00e4");
  CHECK(normalize_nfc("\u1e9b\u0323") == "\u1e9b\u0323");  // blocked: the dot below comes first
  CHECK(normalize_nfc("s\u0307\u0323") == "\u1e69");       // both marks, in canonical order
  CHECK(normalize_nfc("\u212b\u2126") == "\u00c5\u03a9");  // singletons
  CHECK(normalize_nfc("\u0958") == "\u0915\u093c");        // excluded from composition
  CHECK(normalize_nfc("\u1112\u1161\u11ab\u1100\u1161") == "\ud55c\uac00");
  CHECK(normalize_nfc("e\xff\u0301") == "e\xff\u0301");
  CHECK(normalize_nfc("xe\u0301\xffo\u0302y") == "x\u00e9\xff\u00f4y");
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t i = random() % 12; i > 0; --i) {
      static char const* const parts[] = {"a",      "e",      "\u0301", "\u0323", "\u1100", "\u1161",
                                          "\u11a8", "\uac00", "\u0958", "\xff",   "\u00e9", "\u0345"};
      text += parts[random() % 12];
    }
    std::string const once = normalize_nfc(text);
    REQUIRE(normalize_nfc(once) == once);
  }
}
