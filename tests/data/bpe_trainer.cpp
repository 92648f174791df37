// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/bpe_trainer.hpp>

#include "support/catch.hpp"

#include <map>
#include <random>

using namespace tutti;

namespace {

struct Learned {
  std::vector<data::Merge> merges;
  std::vector<std::string> tokens;
};

/// Counts every pair of every piece anew before each merge.
Learned naive_train(std::vector<std::string> const& documents, std::size_t merges, std::int64_t minimum) {
  Learned learned;
  std::array<std::int32_t, 256> id{};
  for (std::size_t i = 0; i < 256; ++i) {
    id[data::detail::byte_alphabet.order[i]] = static_cast<std::int32_t>(i);
    learned.tokens.emplace_back(1, static_cast<char>(data::detail::byte_alphabet.order[i]));
  }
  std::vector<std::vector<std::int32_t>> pieces;
  for (auto const& document : documents)
    data::PreTokenizer().split(document, [&](std::string_view piece) {
      pieces.emplace_back();
      for (char const byte : piece) pieces.back().push_back(id[static_cast<unsigned char>(byte)]);
    });
  while (learned.tokens.size() < 256 + merges) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (auto const& piece : pieces)
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) ++counts[{piece[i], piece[i + 1]}];
    std::pair<std::int32_t, std::int32_t> best;
    std::int64_t count = 0;
    for (auto const& [pair, many] : counts)
      if (many > count) {
        best = pair;
        count = many;
      }
    if (count < minimum || count == 0) break;
    std::string const bytes =
        learned.tokens[static_cast<std::size_t>(best.first)] + learned.tokens[static_cast<std::size_t>(best.second)];
    auto const same = std::find(learned.tokens.begin() + 256, learned.tokens.end(), bytes);
    auto const merged = static_cast<std::int32_t>(same - learned.tokens.begin());
    if (same == learned.tokens.end()) learned.tokens.push_back(bytes);
    data::Merge const merge{best.first, best.second};
    if (std::find(learned.merges.begin(), learned.merges.end(), merge) == learned.merges.end())
      learned.merges.push_back(merge);
    for (auto& piece : pieces)
      for (std::size_t i = 0; i + 1 < piece.size(); ++i)
        if (piece[i] == best.first && piece[i + 1] == best.second) {
          piece[i] = merged;
          piece.erase(piece.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return learned;
}

std::string random_text(std::mt19937& random, std::size_t length, std::string const& alphabet) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += alphabet[random() % alphabet.size()];
  return text;
}

}  // namespace

TEST_CASE("the trainer learns what counting everything anew learns") {
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    std::string const alphabet = round % 4 == 0   ? "a"
                                 : round % 4 == 1 ? "ab "
                                 : round % 4 == 2 ? "aab c\n"
                                                  : "abcdefgh 12.,\xc3\xa9\xff";
    std::vector<std::string> const documents = {random_text(random, random() % 300, alphabet),
                                                random_text(random, random() % 300, alphabet), ""};
    std::size_t const merges = random() % 60;
    std::int64_t const minimum = 1 + static_cast<std::int64_t>(random() % 3);
    Learned const expected = naive_train(documents, merges, minimum);
    std::vector<std::string_view> const views(documents.begin(), documents.end());
    auto const tokenizer =
        data::train_bpe(views, {.vocabulary = static_cast<std::int32_t>(257 + merges), .minimum_count = minimum});
    REQUIRE(tokenizer.merges() == expected.merges);
    REQUIRE(std::vector<std::string>(tokenizer.tokens().begin(), tokenizer.tokens().end() - 1) == expected.tokens);
    for (auto const& document : documents) REQUIRE(tokenizer.decode(tokenizer.encode(document)) == document);
  }
}

TEST_CASE("a trained vocabulary compresses, ends with its special tokens and is the same every time") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat and the dog sat on the log " + std::to_string(i) + "\n";
  std::vector<std::string_view> const documents = {text};
  auto const tokenizer = data::train_bpe(documents, {.vocabulary = 290, .specials = {"<|endoftext|>", "<|pad|>"}});
  CHECK(tokenizer.vocabulary() == 290);
  CHECK(tokenizer.special("<|endoftext|>") == 288);
  CHECK(tokenizer.special("<|pad|>") == 289);
  CHECK(tokenizer.encode(text).size() < text.size() / 2);
  CHECK(data::train_bpe(documents, {.vocabulary = 290, .specials = {"<|endoftext|>", "<|pad|>"}}).merges() ==
        tokenizer.merges());
}

TEST_CASE("too little text gives a smaller vocabulary, too small a vocabulary is refused") {
  CHECK(data::train_bpe({}, {.vocabulary = 5000}).vocabulary() == 257);
  std::vector<std::string_view> const documents = {"abab"};
  CHECK(data::train_bpe(documents, {.vocabulary = 5000}).vocabulary() == 258);
  CHECK(data::train_bpe(documents, {.vocabulary = 257}).merges().empty());
  REQUIRE_ERROR(data::train_bpe(documents, {.vocabulary = 256}), ErrorKind::invalid_argument, "256");
}
