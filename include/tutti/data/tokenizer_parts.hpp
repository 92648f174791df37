// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a tokenizer consists of; readers of files fill it in.

#include <tutti/data/added_tokens.hpp>
#include <tutti/data/merges.hpp>
#include <tutti/data/piece_scanner.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

/// The text that marks the boundary between documents in GPT-2's vocabulary.
inline constexpr std::string_view end_of_text_mark = "<|endoftext|>";
/// The character that stands for a space in SentencePiece's vocabularies, U+2581.
inline constexpr std::string_view space_mark = "\xe2\x96\x81";

/// What merging starts from.
enum class Alphabet : unsigned char {
  bytes,      ///< GPT-2's family
  characters  ///< SentencePiece's family: spaces are U+2581, a character without a token becomes the tokens of its
              ///< bytes
};

/// Where an alphabet of characters puts a space before a text that has none.
enum class PrefixSpace : unsigned char {
  none,
  always,          ///< before every text and behind every special token, even before a space
  unless_present,  ///< likewise, unless a space stands there
  first            ///< before the beginning of the whole text only, unless a space stands there
};

/// Tokens with a part to play; what a file does not name is absent.
struct TokenRoles {
  std::optional<std::int32_t> begin, end, end_of_turn, unknown, padding;
  bool add_begin = false, add_end = false;  ///< what `encode_complete` adds

  friend bool operator==(TokenRoles const&, TokenRoles const&) = default;
};

/// All that a tokenizer consists of.
struct TokenizerParts {
  std::vector<std::string> tokens = {};  ///< by id, as they stand in the (normalized) text; empty where an id has none
  std::vector<Merge> merges = {};
  std::vector<std::int32_t> ranks = {};  ///< of the merges; empty: their places
  std::vector<SpecialToken> specials = {};
  std::vector<std::string> patterns = {std::string(gpt2_pattern)};
  bool whole_pieces = false;  ///< a piece that is itself a token is taken without merging (ignore_merges)
  bool nfc = false;           ///< text is brought to normalization form C first
  Alphabet alphabet = Alphabet::bytes;
  PrefixSpace prefix_space = PrefixSpace::none;
  std::vector<std::string> loose = {};  ///< characters: texts of symbols `tokens.size()` and up, which are no tokens
  std::vector<std::int32_t> byte_tokens =
      {};                     ///< characters: 256 ids, -1 where there is none; empty: no token for bytes
  bool fuse_unknown = false;  ///< a run of what has no token is one unknown token
  bool drop_unknown = false;  ///< what has no token leaves none, as bytes of an alphabet learned from text; it is lost
  TokenRoles roles = {};

  friend bool operator==(TokenizerParts const&, TokenizerParts const&) = default;
};

}  // namespace tutti::data
