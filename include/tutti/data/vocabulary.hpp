// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tokenizers from bare vocabularies: that of a GGUF file, and those whose ids are ranks.

#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/data/tokenizer_reader.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

/// What a GGUF file says under `tokenizer.`; the names are those of its keys. A reader of such files fills it in.
struct GgufVocabulary {
  std::string model;  ///< ggml.model: "gpt2" (bytes) or "llama" (characters)
  std::string pre;    ///< ggml.pre; empty: "default"
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty: normal
  std::vector<std::string> merges;  ///< "left right"
  std::optional<std::int32_t> bos, eos, eot, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string chat_template;
};

namespace detail {

/// Makes a tokenizer of one vocabulary; every refusal names its source.
class GgufTokenizer {
 public:
  GgufTokenizer(GgufVocabulary const& from, std::string source) : from_(from), source_(std::move(source)) {}

  Tokenizer make() {
    std::size_t const count = from_.tokens.size();
    if (count == 0 || count > (std::size_t{1} << 22)) refuse("it has " + std::to_string(count) + " tokens");
    if (!from_.types.empty() && from_.types.size() != count)
      refuse("it has " + std::to_string(from_.types.size()) + " types for " + std::to_string(count) + " tokens");
    for (std::int32_t const type : from_.types)
      if (type < 1 || type > 6) refuse("it has a token of type " + std::to_string(type));
    parts_.tokens.resize(count);
    parts_.roles.add_end = from_.add_eos.value_or(false);
    parts_.roles.end_of_turn = from_.eot;
    parts_.roles.padding = from_.padding;
    add_specials();
    if (from_.model == "gpt2") make_bytes();
    else if (from_.model == "llama") make_characters();
    else refuse("its tokenizer is '" + from_.model.substr(0, 40) + "', neither gpt2 nor llama");
    try {
      return Tokenizer(std::move(parts_));
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::format) throw;
      refuse(error.message());
    }
  }

 private:
  enum Type : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorKind::format, "make_tokenizer",
                "'" + source_ + "' has no usable vocabulary: " + why + ". Convert the model again");
  }
  std::int32_t type(std::size_t id) const noexcept { return from_.types.empty() ? normal : from_.types[id]; }

  void add_specials() {
    std::unordered_map<std::string_view, std::size_t> known;
    for (std::size_t id = 0; id < from_.tokens.size(); ++id) {
      bool const special = type(id) == control || type(id) == unknown;
      if ((!special && type(id) != user_defined) || from_.tokens[id].empty()) continue;
      if (!known.emplace(from_.tokens[id], id).second) continue;  // the first of a kind is found
      SpecialToken token{from_.tokens[id], static_cast<std::int32_t>(id)};
      token.special = special;
      parts_.specials.push_back(std::move(token));
    }
  }

  void make_bytes() {
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t id = 0; id < from_.tokens.size(); ++id) {
      std::string const& spelled = from_.tokens[id];
      ids.emplace(spelled, static_cast<std::int32_t>(id));
      auto bytes = unspell_bytes(spelled);
      if (bytes) parts_.tokens[id] = std::move(*bytes);
      else if (type(id) == normal) refuse("token " + std::to_string(id) + " is not spelled in the byte alphabet");
    }
    for (std::size_t place = 0; place < from_.merges.size(); ++place) {
      std::string_view const text = from_.merges[place];
      auto const space = text.find(' ', 1);
      auto const left = space == text.npos ? ids.end() : ids.find(text.substr(0, space));
      auto const right = space == text.npos ? ids.end() : ids.find(text.substr(space + 1));
      if (left == ids.end() || right == ids.end()) refuse("merge " + std::to_string(place) + " is not two tokens");
      parts_.merges.push_back({left->second, right->second});
    }
    NamedPatterns named = patterns_named(from_.pre.empty() ? "default" : from_.pre);
    parts_.patterns = std::move(named.patterns);
    parts_.whole_pieces = named.whole_pieces;
    parts_.drop_unknown = true;
    parts_.roles.begin = from_.bos;
    parts_.roles.end = from_.eos;
    parts_.roles.unknown = from_.unknown;
    parts_.roles.add_begin = from_.add_bos.value_or(named.begin && from_.bos);
  }

  void make_characters() {
    std::size_t const count = from_.tokens.size();
    if (from_.scores.size() != count)
      refuse("it has " + std::to_string(from_.scores.size()) + " scores for " + std::to_string(count) + " tokens");
    if (std::any_of(from_.scores.begin(), from_.scores.end(), [](float score) { return std::isnan(score); }))
      refuse("it has a score that is no number");
    parts_.alphabet = Alphabet::characters;
    parts_.patterns.clear();
    parts_.prefix_space = from_.add_space_prefix.value_or(true) ? PrefixSpace::always : PrefixSpace::none;
    parts_.byte_tokens.assign(256, -1);
    auto const role = [&](std::optional<std::int32_t> given, std::int32_t usual) {
      return given || usual >= static_cast<std::int32_t>(count) ? given : std::optional(usual);
    };
    parts_.roles.begin = role(from_.bos, 1);
    parts_.roles.end = role(from_.eos, 2);
    parts_.roles.unknown = role(from_.unknown, 0);
    parts_.roles.add_begin = from_.add_bos.value_or(true);
    std::unordered_map<std::string_view, std::int32_t> symbols;  // what merging can make or start from
    for (std::size_t id = 0; id < count; ++id) {
      std::string const& text = from_.tokens[id];
      parts_.tokens[id] = text;
      if (type(id) == byte) {
        auto const value = byte_named(text);
        if (!value) refuse("token " + std::to_string(id) + " is a byte and does not name one");
        parts_.byte_tokens[*value] = static_cast<std::int32_t>(id);
      } else if (mergeable(id)) {
        symbols.emplace(text, static_cast<std::int32_t>(id));
      }
    }
    add_merges(symbols);
  }
  bool mergeable(std::size_t id) const noexcept {
    return !from_.tokens[id].empty() && (type(id) == normal || type(id) == user_defined || type(id) == unused);
  }
  /// Every two symbols that together are a token merge; the higher its score, the earlier.
  void add_merges(std::unordered_map<std::string_view, std::int32_t>& symbols) {
    std::vector<float> scores = from_.scores;
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    auto const symbol = [&](std::string_view text) -> std::int32_t {
      if (auto const found = symbols.find(text); found != symbols.end()) return found->second;
      if (utf8_front(text).length != text.size()) return -1;
      auto const id = static_cast<std::int32_t>(from_.tokens.size() + parts_.loose.size());
      parts_.loose.emplace_back(text);
      return symbols.emplace(text, id).first->second;  // `text` lies in a token of the vocabulary
    };
    for (std::size_t id = 0; id < from_.tokens.size(); ++id) {
      std::string_view const text = from_.tokens[id];
      if (!mergeable(id) || symbols.at(text) != static_cast<std::int32_t>(id)) continue;
      auto const rank = std::lower_bound(scores.begin(), scores.end(), from_.scores[id], std::greater<>());
      for (std::size_t cut = 0; (cut += std::max<std::size_t>(utf8_front(text.substr(cut)).length, 1)) < text.size();) {
        std::int32_t const left = symbol(text.substr(0, cut)), right = symbol(text.substr(cut));
        if (left < 0 || right < 0) continue;
        parts_.merges.push_back({left, right});
        parts_.ranks.push_back(static_cast<std::int32_t>(rank - scores.begin()));
      }
    }
  }

  GgufVocabulary const& from_;
  std::string source_;
  TokenizerParts parts_;
};

}  // namespace detail

/// `source` names the file in messages. Errors: format, with the source, what is wrong and what to do.
inline Tokenizer make_tokenizer(GgufVocabulary const& vocabulary, std::string source) {
  return detail::GgufTokenizer(vocabulary, std::move(source)).make();
}

/// Merges of a vocabulary whose ids are ranks: any two tokens that together are a token merge, the smallest id first.
/// Fills in `merges` and `ranks`.
inline void add_rank_merges(TokenizerParts& parts) {
  detail::PieceMap<std::int32_t> ids;
  for (std::size_t id = 0; id < parts.tokens.size(); ++id)
    if (!parts.tokens[id].empty()) ids.insert(parts.tokens[id], static_cast<std::int32_t>(id));
  for (std::size_t id = 0; id < parts.tokens.size(); ++id) {
    std::string_view const text = parts.tokens[id];
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      auto const *left = ids.find(text.substr(0, cut)), *right = ids.find(text.substr(cut));
      if (left == nullptr || right == nullptr) continue;
      parts.merges.push_back({*left, *right});
      parts.ranks.push_back(static_cast<std::int32_t>(id));
    }
  }
}

}  // namespace tutti::data
