// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The published pre-tokenizer patterns and scanners written by hand for them, which cut as the patterns do, many times
/// faster than an engine of regular expressions.

#include <tutti/data/unicode.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::data {

/// The pattern that OpenAI published with GPT-2.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// The pattern of Llama 3 (and the older text of cl100k_base): up to three digits, a word with what stands before it.
inline constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| )"
    R"(?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// The pattern of Qwen 2: as Llama 3's, digits one by one.
inline constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// The pattern of tiktoken's cl100k_base: as Llama 3's, but spaces that end the text stay together.
inline constexpr std::string_view cl100k_pattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| )"
    R"(?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
/// Digits one by one; it stands before GPT-2's pattern in SmolLM's and StarCoder's tokenizers.
inline constexpr std::string_view digit_pattern = R"(\p{N})";

namespace detail {

/// Cuts valid UTF-8 as one of the patterns above does.
class PieceScanner {
 public:
  /// Nothing when the patterns, applied one after another, are none of the known ones.
  static std::optional<PieceScanner> of(std::vector<std::string> const& patterns) {
    if (patterns.size() == 2 && patterns[0] == digit_pattern && patterns[1] == gpt2_pattern)
      return PieceScanner(Kind::gpt2, 1, false);
    if (patterns.size() != 1) return std::nullopt;
    if (patterns[0] == gpt2_pattern) return PieceScanner(Kind::gpt2, unlimited, false);
    if (patterns[0] == llama3_pattern) return PieceScanner(Kind::word, 3, false);
    if (patterns[0] == qwen2_pattern) return PieceScanner(Kind::word, 1, false);
    if (patterns[0] == cl100k_pattern) return PieceScanner(Kind::word, 3, true);
    return std::nullopt;
  }

  template <class Piece>
  void split(std::string_view text, Piece&& piece) const {
    char const* at = text.data();
    char const* const end = at + text.size();
    if (kind_ == Kind::word) {
      while (at != end) at = give(at, word(at, end), piece);
    } else if (digits_ == unlimited) {
      while (at != end) at = give(at, gpt2(at, end), piece);
    } else {
      while (at != end) {  // what stands between digits is a text of its own
        char const* stop = at;
        std::size_t length = 0;
        while (stop != end && class_at(stop, length) != CharClass::number) stop += length;
        while (at != stop) at = give(at, gpt2(at, stop), piece);
        if (stop != end) at = give(stop, stop + length, piece);
      }
    }
  }

 private:
  enum class Kind : unsigned char { gpt2, word };
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  PieceScanner(Kind kind, std::size_t digits, bool trailing_whole)
      : classes_(char_classes()), kind_(kind), digits_(digits), trailing_whole_(trailing_whole) {
    for (std::size_t code = 0; code < 128; ++code) ascii_[code] = classes_[code];
  }

  template <class Piece>
  static char const* give(char const* begin, char const* end, Piece&& piece) {
    piece(std::string_view(begin, static_cast<std::size_t>(end - begin)));
    return end;
  }

  CharClass class_at(char const* at, std::size_t& length) const noexcept {
    auto const byte = static_cast<unsigned char>(*at);
    if (byte < 128) {
      length = 1;
      return ascii_[byte];
    }
    CodePoint const code = decode_utf8(at);
    length = code.length;
    return classes_[code.value];
  }
  static constexpr bool is_space(CharClass kind) noexcept { return kind >= CharClass::space; }

  /// Behind the run of characters of class `kind`.
  char const* run(char const* at, char const* end, CharClass kind) const noexcept {
    std::size_t length = 0;
    while (at != end && class_at(at, length) == kind) at += length;
    return at;
  }

  /// Bytes of the contraction behind an apostrophe at `at`; 0 when there is none.
  static std::size_t contraction(char const* at, char const* end, bool any_case) noexcept {
    auto const left = end - at;
    auto const letter = [&](int i) {
      return static_cast<char>(any_case && at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]);
    };
    if (left < 2) return 0;
    char const first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    // The long s (U+017F) is an s in any case.
    if (any_case && left >= 3 && at[1] == '\xc5' && at[2] == '\xbf') return 3;
    if (left < 3) return 0;
    char const second = letter(2);
    return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3 : 0;
  }

  char const* gpt2(char const* at, char const* end) const noexcept {
    if (*at == '\'')
      if (std::size_t const length = contraction(at, end, false)) return at + length;
    char const* const from = *at == ' ' && at + 1 != end ? at + 1 : at;
    std::size_t length = 0;
    CharClass const kind = class_at(from, length);
    if (!is_space(kind)) return run(from + length, end, kind);
    char const *last = at, *stop = at;  // all spaces but the last, which goes to the word behind it
    while (stop != end && is_space(class_at(stop, length))) {
      last = stop;
      stop += length;
    }
    return stop == end || last == at ? stop : last;
  }

  char const* word(char const* at, char const* end) const noexcept {
    if (*at == '\'')
      if (std::size_t const length = contraction(at, end, true)) return at + length;
    std::size_t length = 0, next_length = 0;
    CharClass const kind = class_at(at, length);
    char const* const next = at + length;
    if (kind == CharClass::letter) return run(next, end, CharClass::letter);
    if (kind == CharClass::number) {
      char const* stop = next;
      for (std::size_t count = 1; count < digits_ && stop != end; ++count) {
        if (class_at(stop, next_length) != CharClass::number) break;
        stop += next_length;
      }
      return stop;
    }
    CharClass const after = next == end ? CharClass::newline : class_at(next, next_length);
    if (kind != CharClass::newline && next != end && after == CharClass::letter)
      return run(next + next_length, end, CharClass::letter);
    if (kind == CharClass::other || (*at == ' ' && next != end && after == CharClass::other))
      return run(run(next, end, CharClass::other), end, CharClass::newline);
    char const *last = at, *stop = at, *newline = nullptr;
    for (CharClass space; stop != end && is_space(space = class_at(stop, length)); stop += length) {
      last = stop;
      if (space == CharClass::newline) newline = stop + length;
    }
    if (trailing_whole_ && stop == end) return stop;
    if (newline != nullptr) return newline;
    return stop == end || last == at ? stop : last;
  }

  CharClass const* classes_;
  std::array<CharClass, 128> ascii_{};
  Kind kind_;
  std::size_t digits_;
  bool trailing_whole_;
};

}  // namespace detail
}  // namespace tutti::data
