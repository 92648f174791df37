// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/added_tokens.hpp>

#include "support/catch.hpp"

using namespace tutti;

namespace {
/// Text in brackets between marks, a mark as its id.
std::string found(std::vector<data::SpecialToken> const& tokens, std::string_view text,
                  data::Marks marks = data::Marks::as_tokens) {
  data::detail::AddedTokens added;
  for (auto const& token : tokens) added.add(token);
  std::string result;
  added.split(
      text, marks, [&](std::string_view part) { result += "[" + std::string(part) + "]"; },
      [&](data::SpecialToken const& token) { result += std::to_string(token.id); });
  return result;
}
data::SpecialToken token(std::string content, int id, auto&&... set) {
  data::SpecialToken result{std::move(content), id};
  (set(result), ...);
  return result;
}
auto const lstrip = [](data::SpecialToken& t) { t.lstrip = true; };
auto const rstrip = [](data::SpecialToken& t) { t.rstrip = true; };
auto const single = [](data::SpecialToken& t) { t.single_word = true; };
auto const word = [](data::SpecialToken& t) { t.special = false; };
}  // namespace

TEST_CASE("the leftmost mark is found, among those at one place the longest") {
  CHECK(found({}, "ab") == "[ab]");
  CHECK(found({token("<a>", 1), token("<a>b", 2), token("a>", 3)}, "x<a>b<a>a>") == "[x]213");
  CHECK(found({token("<a>", 1)}, "") == "");
  CHECK(found({token("<a>", 1)}, "<a") == "[<a]");
}

TEST_CASE("as text, marks stay text and added words are found") {
  CHECK(found({token("<a>", 1), token("bb", 2, word)}, "<a>bb", data::Marks::as_text) == "[<a>]2");
}

TEST_CASE("spaces beside a mark belong to it where it says so") {
  CHECK(found({token("<a>", 1, lstrip)}, "x \u3000<a> y") == "[x]1[ y]");
  CHECK(found({token("<a>", 1, rstrip)}, "x <a> \n\u2003y") == "[x ]1[y]");
  CHECK(found({token("<a>", 1, lstrip, rstrip)}, "  <a>  <a>") == "11");
  CHECK(found({token("<a>", 1, rstrip)}, "<a> ") == "1");
}

TEST_CASE("a single word is found where no letter touches it") {
  auto const tokens = std::vector{token("ab", 1, single)};
  CHECK(found(tokens, "ab,ab ab") == "1[,]1[ ]1");
  for (std::string const text : {"abc", "cab", "ab_", "1ab", "\u00e9ab", "ab\u0301"})
    CHECK(found(tokens, text) == "[" + text + "]");
}
