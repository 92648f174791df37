// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/data/merges.hpp>
// Covers: <tutti/data/stream_decoder.hpp>
// Covers: <tutti/data/tokenizer_parts.hpp>
#include <tutti/data/stream_decoder.hpp>
#include <tutti/data/tokenizer.hpp>

#include "support/catch.hpp"

#include <map>
#include <random>

using namespace tutti;
using data::Merge;
using data::Tokenizer;

namespace {

/// Bytes as ids 0 to 255, then the result of each merge, then <|endoftext|>.
Tokenizer make(std::vector<Merge> const& merges, std::vector<std::string> const& marks = {"<|endoftext|>"}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (Merge const merge : merges)
    tokens.push_back(tokens[static_cast<std::size_t>(merge.left)] + tokens[static_cast<std::size_t>(merge.right)]);
  std::vector<data::SpecialToken> specials;
  for (auto const& mark : marks) {
    specials.push_back({mark, static_cast<std::int32_t>(tokens.size())});
    tokens.push_back(mark);
  }
  return Tokenizer(std::move(tokens), merges, std::move(specials));
}

std::vector<Merge> random_merges(std::mt19937& random, int count) {
  std::vector<Merge> merges;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::map<std::string, int> known;
  while (static_cast<int>(merges.size()) < count) {
    auto const pick = [&] {
      std::size_t const made = tokens.size() - 256, choice = random() % (made + 4);
      return choice < made ? static_cast<std::int32_t>(256 + choice) : std::int32_t{"ab -"[choice - made]};
    };
    Merge const merge{pick(), pick()};
    std::string const bytes =
        tokens[static_cast<std::size_t>(merge.left)] + tokens[static_cast<std::size_t>(merge.right)];
    if (bytes.size() > 12 || !known.emplace(bytes, 0).second) continue;
    merges.push_back(merge);
    tokens.push_back(bytes);
  }
  return merges;
}

/// The definition: among all neighbours take the merge of the lowest rank, the leftmost one; until none is left.
std::vector<std::int32_t> naive_encode(Tokenizer const& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  data::PreTokenizer(tokenizer.patterns()).split(text, [&](std::string_view piece) {
    std::vector<std::int32_t> symbols;
    for (char const byte : piece) symbols.push_back(static_cast<unsigned char>(byte));
    for (;;) {
      std::size_t best_rank = tokenizer.merges().size(), best = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        for (std::size_t rank = 0; rank < best_rank; ++rank)
          if (tokenizer.merges()[rank] == Merge{symbols[i], symbols[i + 1]}) {
            best_rank = rank;
            best = i;
          }
      if (best_rank == tokenizer.merges().size()) break;
      symbols[best] = static_cast<std::int32_t>(256 + best_rank);
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  });
  return ids;
}

}  // namespace

TEST_CASE("merges apply in the order of their ranks") {
  Tokenizer const tokenizer = make({{'a', 'b'}, {'b', 'c'}, {256, 'c'}, {'a', 'a'}});
  CHECK(tokenizer.encode("abc") == std::vector<std::int32_t>{258});
  CHECK(tokenizer.encode("bc") == std::vector<std::int32_t>{257});
  CHECK(tokenizer.encode("aaa") == std::vector<std::int32_t>{259, 'a'});
  CHECK(tokenizer.encode("aabc") == std::vector<std::int32_t>{'a', 258});
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("encoding equals its definition, for short and long pieces") {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    Tokenizer const tokenizer = make(random_merges(random, 1 + static_cast<int>(random() % 30)));
    std::string text;
    std::size_t const length = random() % (round % 5 == 0 ? 400 : 40);
    for (std::size_t i = 0; i < length; ++i) text += round % 2 == 0 ? "ab"[random() % 2] : "aaabbb -"[random() % 8];
    text += " " + text;  // pieces seen before come from the table
    REQUIRE(tokenizer.encode(text) == naive_encode(tokenizer, text));
    REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("any bytes come back from encoding, one by one through the stream as well") {
  std::mt19937 random(3);
  Tokenizer const tokenizer = make(random_merges(random, 40));
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 300, '\0');
    for (char& byte : text)
      byte = round % 2 == 0 ? static_cast<char>(random()) : "ab-\xe2\x82\xac\xff \n"[random() % 9];
    auto const ids = tokenizer.encode(text);
    REQUIRE(tokenizer.decode(ids) == text);
    data::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (std::int32_t const id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    REQUIRE(streamed == text);
  }
}

TEST_CASE("the stream gives whole characters only") {
  Tokenizer const tokenizer = make({});
  data::StreamDecoder stream(tokenizer);
  std::string const text = "a\u00e9\u20ac\U0001F600z";
  std::vector<std::string> pieces;
  for (char const byte : text)
    if (std::string const piece = stream.push(static_cast<unsigned char>(byte)); !piece.empty())
      pieces.push_back(piece);
  CHECK(pieces == std::vector<std::string>{"a", "\u00e9", "\u20ac", "\U0001F600", "z"});
  CHECK(stream.push(0xe2).empty());
  CHECK(stream.push('x') == "\xe2x");  // no character any more: nothing to wait for
  CHECK(stream.push(0xf0).empty());
  CHECK(stream.finish() == "\xf0");
  CHECK(stream.finish().empty());
  CHECK(stream.push(tokenizer.end_of_text()).empty());
}

TEST_CASE("marks are text unless asked for, and the longest mark wins") {
  Tokenizer const tokenizer = make({{'h', 'i'}}, {"<|endoftext|>", "<|", "<|end|>"});
  CHECK(tokenizer.end_of_text() == 257);
  CHECK(tokenizer.special("<|end|>") == 259);
  CHECK(!tokenizer.special("hi"));
  std::string const text = "hi<|endoftext|>hi<|end|><|<|e<";
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  for (std::int32_t const id : tokenizer.encode(text)) CHECK(!tokenizer.is_special(id));
  auto const ids = tokenizer.encode(text, data::Marks::as_tokens);
  CHECK(ids == std::vector<std::int32_t>{256, 257, 256, 259, 258, 258, 'e', '<'});
  CHECK(tokenizer.decode(ids) == "hihie<");
  CHECK(tokenizer.token_bytes(257) == "<|endoftext|>");
  CHECK(make({}, {"<s>", "</s>"}).end_of_text() == 257);  // as LLaMA's vocabularies call it
  REQUIRE_ERROR(make({}, {}).end_of_text(), ErrorKind::format, "endoftext");
}

TEST_CASE("documents encode as they do alone, each behind its mark") {
  Tokenizer const tokenizer = make({{'a', 'b'}, {256, 'a'}});
  std::vector<std::string_view> const documents = {"aba ab", "", "ab ab aba"};
  std::vector<std::int32_t> together, alone;
  tokenizer.encode_documents(together, documents, tokenizer.end_of_text());
  for (auto const document : documents) {
    alone.push_back(tokenizer.end_of_text());
    tokenizer.encode_to(alone, document);
  }
  CHECK(together == alone);
}

TEST_CASE("a tokenizer survives a move") {
  Tokenizer first = make({{'a', 'b'}});
  Tokenizer const second = std::move(first);
  CHECK(second.encode("abab") == std::vector<std::int32_t>{256, 256});
}

TEST_CASE("an incomplete vocabulary and foreign ids are refused") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  REQUIRE_ERROR(Tokenizer(tokens, {}, {}), ErrorKind::format, "byte 255");
  tokens.emplace_back(1, '\xff');
  CHECK_NOTHROW(Tokenizer(tokens, {}, {}));
  REQUIRE_ERROR(Tokenizer(tokens, {{'a', 'b'}}, {}), ErrorKind::format, "merge 0");
  REQUIRE_ERROR(Tokenizer(tokens, {{'a', 999}}, {}), ErrorKind::format, "outside");
  REQUIRE_ERROR(Tokenizer(tokens, {{-1, 'a'}}, {}), ErrorKind::format, "outside");
  REQUIRE_ERROR(Tokenizer(tokens, {}, {{"x", 256}}), ErrorKind::format, "outside the vocabulary");
  REQUIRE_ERROR(Tokenizer(tokens, {}, {{"", 3}}), ErrorKind::format, "empty");
  tokens.push_back("ab");
  REQUIRE_ERROR(Tokenizer(tokens, {{'a', 'b'}, {'a', 'b'}}, {}), ErrorKind::format, "twice");
  Tokenizer const tokenizer(tokens, {{'a', 'b'}}, {});
  REQUIRE_ERROR(tokenizer.token_bytes(257), ErrorKind::out_of_range, "257");
  REQUIRE_ERROR(tokenizer.token_bytes(-1), ErrorKind::out_of_range, "-1");
  std::vector<std::int32_t> const ids = {0, 300};
  REQUIRE_ERROR(tokenizer.decode(ids), ErrorKind::out_of_range, "300");
}

TEST_CASE("whole pieces that are tokens need no merges when the vocabulary says so") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.push_back("abc");
  CHECK(Tokenizer(tokens, {}, {}, data::gpt2_pattern, true).encode("abc") == std::vector<std::int32_t>{256});
  CHECK(Tokenizer(tokens, {}, {}, data::gpt2_pattern, false).encode("abc") == std::vector<std::int32_t>{'a', 'b', 'c'});
}

TEST_CASE("a byte without a token is the unknown token where there is one") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("<unk>");
  data::TokenizerParts parts{.tokens = tokens, .specials = {{"<unk>", 255}}};
  parts.roles.unknown = 255;
  CHECK(Tokenizer(parts).encode("a\xff\xff") == std::vector<std::int32_t>{'a', 255, 255});
  parts.fuse_unknown = true;
  CHECK(Tokenizer(parts).encode("a\xff\xff") == std::vector<std::int32_t>{'a', 255});
}

TEST_CASE("merges of equal rank take the leftmost pair") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"aa", "aaa"});
  data::TokenizerParts parts{.tokens = tokens, .merges = {{'a', 256}, {256, 'a'}, {'a', 'a'}}, .ranks = {1, 1, 0}};
  CHECK(Tokenizer(parts).encode("aaaaa") == std::vector<std::int32_t>{256, 257});
  parts.ranks = {1, 1};
  REQUIRE_ERROR(Tokenizer(parts), ErrorKind::format, "rank");
}

TEST_CASE("pieces of a million bytes are merged in about n log n, whatever they are") {
  // Quadratic time would be 10^12 steps: the test would not end.
  Tokenizer const tokenizer = make({{'a', 'a'}, {256, 256}, {257, 257}, {'a', 'b'}, {259, 259}});
  for (std::string const unit : {"a", "ab", "aab", "b", "zz"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    auto const ids = tokenizer.encode(text);
    CHECK(tokenizer.decode(ids) == text);
    if (unit == "a") CHECK(ids.size() == 125'000);
  }
}

TEST_CASE("what is put around a complete text follows the roles") {
  data::TokenizerParts parts = make({}, {"<s>", "</s>"}).parts();
  parts.roles.begin = 256;
  parts.roles.end = 257;
  CHECK(Tokenizer(parts).encode_complete("a") == std::vector<std::int32_t>{'a'});
  parts.roles.add_begin = true;
  CHECK(Tokenizer(parts).encode_complete("a") == std::vector<std::int32_t>{256, 'a'});
  parts.roles.add_end = true;
  CHECK(Tokenizer(parts).encode_complete("a") == std::vector<std::int32_t>{256, 'a', 257});
  parts.roles.end = 258;
  REQUIRE_ERROR(Tokenizer(parts), ErrorKind::format, "258");
}
