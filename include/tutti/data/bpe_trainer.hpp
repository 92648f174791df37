// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Learns a byte-level byte-pair vocabulary from text. Counts of pairs are kept up to date over the distinct pieces of
/// the text, so a merge costs what it touches.

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::data {

struct BpeOptions {
  std::int32_t vocabulary = 4096;  ///< ids in all: 256 bytes, the merges, the special tokens
  std::int64_t minimum_count = 2;  ///< a pair seen less often is not merged
  std::string pattern = std::string(gpt2_pattern);
  std::vector<std::string> specials = {std::string(end_of_text_mark)};
};

namespace detail {

struct PairKeyHash {
  std::size_t operator()(std::uint64_t key) const noexcept {
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(key ^ key >> 29);
  }
};

/// The distinct pieces of a text with their counts, in order of first appearance.
struct PieceCounts {
  std::vector<std::vector<std::int32_t>> symbols;
  std::vector<std::int64_t> counts;
};

/// Byte b is symbol `symbol_of[b]`.
inline PieceCounts count_pieces(std::span<std::string_view const> documents, PreTokenizer const& splitter,
                                std::array<std::int32_t, 256> const& symbol_of) {
  PieceCounts result;
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::string_view const document : documents)
    splitter.split(document, [&](std::string_view piece) {
      auto const [entry, fresh] = index.emplace(piece, result.counts.size());
      if (!fresh) {
        ++result.counts[entry->second];
        return;
      }
      result.counts.push_back(1);
      auto& symbols = result.symbols.emplace_back();
      for (char const byte : piece) symbols.push_back(symbol_of[static_cast<unsigned char>(byte)]);
    });
  return result;
}

}  // namespace detail

/// Merges, again and again, the pair of neighbouring tokens that occurs most often inside the pieces of the documents;
/// among equals the pair with the smaller ids. Ids: 256 bytes in GPT-2's order, merges in order, special tokens last.
/// The vocabulary stays smaller than asked for when no pair occurs `minimum_count` times any more.
/// Errors: invalid_argument, when the vocabulary has no room for bytes and special tokens; format, for a bad pattern.
/// Determinism: the same documents and options give the same tokenizer.
inline Tokenizer train_bpe(std::span<std::string_view const> documents, BpeOptions const& options = {}) {
  std::int64_t const merges_wanted =
      std::int64_t{options.vocabulary} - 256 - static_cast<std::int64_t>(options.specials.size());
  if (merges_wanted < 0)
    throw Error(ErrorKind::invalid_argument, "train_bpe",
                "a vocabulary of " + std::to_string(options.vocabulary) + " has no room for 256 bytes and " +
                    std::to_string(options.specials.size()) + " special tokens. Ask for more");
  std::array<std::int32_t, 256> symbol_of{};
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < 256; ++i) {
    std::uint8_t const byte = detail::byte_alphabet.order[i];
    symbol_of[byte] = static_cast<std::int32_t>(i);
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  detail::PieceCounts pieces = detail::count_pieces(documents, PreTokenizer(options.pattern), symbol_of);

  struct PairFacts {
    std::int64_t count = 0;
    std::vector<std::uint32_t> pieces;  // where it occurs, or once did
  };
  using Table = detail::MergeTable;
  std::unordered_map<std::uint64_t, PairFacts, detail::PairKeyHash> pairs;
  auto const note = [&](std::int32_t left, std::int32_t right, std::size_t piece, std::int64_t change) {
    PairFacts& facts = pairs[Table::key_of(left, right)];
    facts.count += change;
    if (change > 0 && (facts.pieces.empty() || facts.pieces.back() != piece))
      facts.pieces.push_back(static_cast<std::uint32_t>(piece));
  };
  for (std::size_t piece = 0; piece < pieces.counts.size(); ++piece)
    for (std::size_t i = 0; i + 1 < pieces.symbols[piece].size(); ++i)
      note(pieces.symbols[piece][i], pieces.symbols[piece][i + 1], piece, pieces.counts[piece]);

  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(Candidate const& other) const noexcept {
      return count != other.count ? count < other.count : key > other.key;
    }
  };
  std::priority_queue<Candidate> queue;
  for (auto const& [key, facts] : pairs) queue.push({facts.count, key});

  std::vector<Merge> merges;
  std::unordered_map<std::string, std::int32_t> known;  // two merges may spell the same bytes: they share a token
  std::unordered_set<std::uint64_t> done;
  std::vector<std::uint64_t> grown;
  while (static_cast<std::int64_t>(tokens.size()) - 256 < merges_wanted && !queue.empty()) {
    Candidate const best = queue.top();
    queue.pop();
    auto const found = pairs.find(best.key);
    if (found == pairs.end() || found->second.count < options.minimum_count || found->second.count < 1) continue;
    if (found->second.count != best.count) {  // it shrank since it was queued; growth is queued at once
      queue.push({found->second.count, best.key});
      continue;
    }
    auto const left = static_cast<std::int32_t>(best.key >> 32),
               right = static_cast<std::int32_t>(best.key & 0xffffffffu);
    std::string const bytes = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    auto const [entry, fresh] = known.emplace(bytes, static_cast<std::int32_t>(tokens.size()));
    std::int32_t const merged = entry->second;
    if (fresh) tokens.push_back(bytes);
    // A pair comes back when one of its sides is made again by another merge: its rank is the old one.
    if (done.insert(best.key).second) merges.push_back({left, right});

    std::vector<std::uint32_t> const touched = std::move(found->second.pieces);
    grown.clear();
    for (std::uint32_t const piece : touched) {
      auto& symbols = pieces.symbols[piece];
      std::int64_t const count = pieces.counts[piece];
      std::size_t out = 0;
      for (std::size_t i = 0; i < symbols.size(); ++i, ++out) {
        if (symbols[i] != left || i + 1 == symbols.size() || symbols[i + 1] != right) {
          symbols[out] = symbols[i];
          continue;
        }
        if (out > 0) {
          note(symbols[out - 1], left, piece, -count);
          note(symbols[out - 1], merged, piece, count);
          grown.push_back(Table::key_of(symbols[out - 1], merged));
        }
        if (i + 2 < symbols.size()) {
          note(right, symbols[i + 2], piece, -count);
          note(merged, symbols[i + 2], piece, count);
          grown.push_back(Table::key_of(merged, symbols[i + 2]));
        }
        symbols[out] = merged;
        ++i;
      }
      symbols.resize(out);
    }
    pairs.erase(best.key);
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (std::uint64_t const key : grown)
      if (auto const pair = pairs.find(key); pair != pairs.end() && pair->second.count > 0)
        queue.push({pair->second.count, key});
  }

  std::vector<SpecialToken> specials;
  for (std::string const& content : options.specials) {
    specials.push_back({content, static_cast<std::int32_t>(tokens.size())});
    tokens.push_back(content);
  }
  return Tokenizer(std::move(tokens), std::move(merges), std::move(specials), options.pattern);
}

}  // namespace tutti::data
