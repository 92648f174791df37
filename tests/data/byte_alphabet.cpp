// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/byte_alphabet.hpp>

#include "support/catch.hpp"

#include <set>

using namespace tutti;

TEST_CASE("every byte has one spelling and comes back from it") {
  std::set<std::string> spellings;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    std::string const one(1, static_cast<char>(byte));
    all += one;
    std::string const spelled = data::spell_bytes(one);
    CHECK(spellings.insert(spelled).second);
    CHECK(data::unspell_bytes(spelled) == one);
  }
  CHECK(data::unspell_bytes(data::spell_bytes(all)) == all);
  CHECK(data::unspell_bytes("") == "");
}

TEST_CASE("the spelling is GPT-2's") {
  CHECK(data::spell_bytes(" ") == "\xc4\xa0");   // U+0120
  CHECK(data::spell_bytes("\n") == "\xc4\x8a");  // U+010A
  CHECK(data::spell_bytes("!~az") == "!~az");
  CHECK(data::spell_bytes(std::string(1, '\0')) == "\xc4\x80");
  CHECK(data::spell_bytes("\xad") == "\xc5\x83");  // the last of the 68 that cannot print: U+0143
  CHECK(data::spell_bytes("\xff") == "\xc3\xbf");
  CHECK(data::detail::byte_alphabet.order[0] == '!');
  CHECK(data::detail::byte_alphabet.order[188] == 0);
  CHECK(data::detail::byte_alphabet.order[220] == ' ');
  CHECK(data::detail::byte_alphabet.order[255] == 0xad);
}

TEST_CASE("text outside the alphabet spells no bytes") {
  for (std::string const text :
       {" ", "\n", "a b", "\xc5\x84", "\xc4", "\xc4z", "\xe2\x82\xac", "\xc2\xa0", "\xc1\xa1", "\x80"})
    CHECK(!data::unspell_bytes(text));
}
