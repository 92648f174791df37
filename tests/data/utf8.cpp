// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/utf8.hpp>

#include "support/catch.hpp"

#include <string>

using namespace tutti;

namespace {
std::string encode(unsigned code) {
  auto const byte = [](unsigned value) { return std::string(1, static_cast<char>(value)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) return byte(0xC0 | code >> 6) + byte(0x80 | (code & 63));
  if (code < 0x10000) return byte(0xE0 | code >> 12) + byte(0x80 | (code >> 6 & 63)) + byte(0x80 | (code & 63));
  return byte(0xF0 | code >> 18) + byte(0x80 | (code >> 12 & 63)) + byte(0x80 | (code >> 6 & 63)) +
         byte(0x80 | (code & 63));
}
}  // namespace

TEST_CASE("every code point but the surrogates is one character, and its beginnings are truncated ones") {
  int wrong = 0;
  for (unsigned code = 0; code < 0x110000; ++code) {
    std::string const text = encode(code);
    bool const surrogate = code >= 0xD800 && code < 0xE000;
    wrong += data::utf8_front(text + "x").length != (surrogate ? 0 : text.size());
    if (!surrogate)
      for (std::size_t part = 1; part < text.size(); ++part) {
        auto const front = data::utf8_front(std::string_view(text).substr(0, part));
        wrong += front.length != 0 || !front.truncated;
        wrong += data::utf8_front(text.substr(0, part) + "x").truncated;
      }
  }
  CHECK(wrong == 0);
}

TEST_CASE("overlong forms, surrogates and code points beyond the last are no characters") {
  for (std::string const text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82("}) {
    CHECK(data::utf8_front(text).length == 0);
    CHECK(!data::utf8_front(text).truncated);
    CHECK(data::utf8_prefix("ab" + text) == 2);
  }
  CHECK(data::utf8_front("").truncated);
  CHECK(data::utf8_prefix("") == 0);
  CHECK(data::utf8_prefix("a\xc3\xa9\xf0\x9f\x98\x80") == 7);
}
