// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What tokenizers ask of Unicode: the class of a character, and normalization form C.

#include <tutti/data/unicode_tables.hpp>
#include <tutti/data/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

/// Classes that published pre-tokenizers tell apart. A newline is a space that is LF or CR.
enum class CharClass : std::uint8_t { other, letter, number, space, newline };

/// A valid character at the front of some bytes: its code point and how many bytes it takes.
struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;
};
/// `at` must be the front of a valid character, which is not checked.
inline CodePoint decode_utf8(char const* at) noexcept {
  auto const byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  char32_t const lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 31) << 6 | (byte(1) & 63), 2};
  if (lead < 0xF0) return {(lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63), 3};
  return {(lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63), 4};
}
inline void append_utf8(std::string& text, char32_t code) {
  auto const put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 63));
  if (code < 0x10000) return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
}

namespace detail {

/// Reads the numbers of a packed table.
class Unpacker {
 public:
  explicit constexpr Unpacker(std::string_view text) noexcept : text_(text) {}
  constexpr bool done() const noexcept { return at_ == text_.size(); }
  constexpr std::uint32_t next() noexcept {
    std::uint32_t value = 0;
    for (unsigned shift = 0;; shift += 5) {
      auto const character = static_cast<unsigned char>(text_[at_++]);
      // The 64 digits are the printable characters from '#' on but '?' and '\'.
      std::uint32_t const digit = character - 35u - (character > '?' ? 1u : 0u) - (character > '\\' ? 1u : 0u);
      value |= (digit & 31u) << shift;
      if (digit < 32) return value;
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

inline constexpr char32_t unicode_end = 0x110000;

inline std::vector<CharClass> make_char_classes() {
  std::vector<CharClass> classes(unicode_end, CharClass::other);
  auto const fill = [&](std::string_view packed, CharClass kind) {
    Unpacker numbers(packed);
    for (std::size_t at = 0; !numbers.done();) {
      at += numbers.next();
      std::size_t const end = at + numbers.next();
      std::fill(classes.begin() + static_cast<std::ptrdiff_t>(at), classes.begin() + static_cast<std::ptrdiff_t>(end),
                kind);
      at = end;
    }
  };
  fill(packed_letters, CharClass::letter);
  fill(packed_numbers, CharClass::number);
  for (unsigned const space :
       {0x09u, 0x0bu, 0x0cu, 0x20u, 0x85u, 0xa0u, 0x1680u, 0x2028u, 0x2029u, 0x202fu, 0x205fu, 0x3000u})
    classes[space] = CharClass::space;
  for (unsigned space = 0x2000; space <= 0x200a; ++space) classes[space] = CharClass::space;
  classes['\n'] = classes['\r'] = CharClass::newline;
  return classes;
}

}  // namespace detail

/// Class of every code point, by code point. Made by the first call.
inline CharClass const* char_classes() {
  static std::vector<CharClass> const classes = detail::make_char_classes();
  return classes.data();
}

namespace detail {

// Hangul syllables are computed: 19 leading consonants, 21 vowels, 27 trailing consonants or none.
inline constexpr char32_t hangul_base = 0xAC00, hangul_lead = 0x1100, hangul_vowel = 0x1161, hangul_trail = 0x11A7,
                          hangul_leads = 19, hangul_vowels = 21, hangul_trails = 28,
                          hangul_count = hangul_leads * hangul_vowels * hangul_trails;

struct Composition {
  std::vector<std::uint8_t> combining;                                        // class by code point
  std::unordered_map<char32_t, std::pair<char32_t, char32_t>> decomposition;  // second 0: of one part
  std::unordered_map<std::uint64_t, char32_t> composed;
  std::vector<bool> steady;  // a starter that stays as it is and does not compose with what stands before it

  static std::uint64_t key(char32_t first, char32_t second) noexcept {
    return std::uint64_t{first} << 32 | std::uint64_t{second};
  }
  Composition() : combining(unicode_end), steady(unicode_end, true) {
    Unpacker runs(packed_combining);
    for (std::size_t at = 0; !runs.done();) {
      at += runs.next();
      std::size_t const length = runs.next();
      auto const kind = static_cast<std::uint8_t>(runs.next());
      std::fill_n(combining.begin() + static_cast<std::ptrdiff_t>(at), length, kind);
      at += length;
    }
    Unpacker mappings(packed_decompositions);
    for (char32_t code = 0; !mappings.done();) {
      code += mappings.next();
      char32_t const first = mappings.next(), second = mappings.next();
      decomposition.emplace(code, std::pair(first, second));
      bool const composes = second != 0 && mappings.next() == 0;
      if (composes) composed.emplace(key(first, second), code);
      if (!composes) steady[code] = false;
      if (composes) steady[second] = false;
    }
    for (std::size_t code = 0; code < unicode_end; ++code)
      if (combining[code] != 0 || (code > hangul_vowel - 1 && code < hangul_trail + hangul_trails))
        steady[code] = false;
  }
};
inline Composition const& composition() {
  static Composition const tables;
  return tables;
}

inline void append_decomposed(std::vector<char32_t>& codes, char32_t code, Composition const& tables) {
  if (code >= hangul_base && code < hangul_base + hangul_count) {
    char32_t const index = code - hangul_base;
    codes.push_back(hangul_lead + index / (hangul_vowels * hangul_trails));
    codes.push_back(hangul_vowel + index % (hangul_vowels * hangul_trails) / hangul_trails);
    if (index % hangul_trails != 0) codes.push_back(hangul_trail + index % hangul_trails);
    return;
  }
  auto const found = tables.decomposition.find(code);
  if (found == tables.decomposition.end()) return codes.push_back(code);
  append_decomposed(codes, found->second.first, tables);
  if (found->second.second != 0) append_decomposed(codes, found->second.second, tables);
}

/// The character that two make; 0 when they make none.
inline char32_t compose(char32_t first, char32_t second, Composition const& tables) {
  if (first >= hangul_lead && first < hangul_lead + hangul_leads && second >= hangul_vowel &&
      second < hangul_vowel + hangul_vowels)
    return hangul_base + ((first - hangul_lead) * hangul_vowels + (second - hangul_vowel)) * hangul_trails;
  if (first >= hangul_base && first < hangul_base + hangul_count && (first - hangul_base) % hangul_trails == 0 &&
      second > hangul_trail && second < hangul_trail + hangul_trails)
    return first + (second - hangul_trail);
  auto const found = tables.composed.find(Composition::key(first, second));
  return found == tables.composed.end() ? 0 : found->second;
}

inline void append_nfc(std::string& result, std::string_view text) {
  Composition const& tables = composition();
  std::vector<char32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    CodePoint const code = decode_utf8(text.data() + at);
    append_decomposed(codes, code.value, tables);
    at += code.length;
  }
  auto const kind = [&](char32_t code) { return tables.combining[code]; };
  for (auto at = codes.begin(); at != codes.end();) {  // marks in canonical order
    auto const end = std::find_if(at, codes.end(), [&](char32_t code) { return kind(code) == 0; });
    std::stable_sort(at, end, [&](char32_t a, char32_t b) { return kind(a) < kind(b); });
    at = end == codes.end() ? end : end + 1;
  }
  std::size_t out = 0, starter = codes.size();
  unsigned last =
      0;  // combining class of what stands between the starter and here; 256: a starter that did not compose
  for (char32_t const code : codes) {
    unsigned const own = kind(code);
    if (starter != codes.size() && (out == starter + 1 || (last < own && last != 0))) {
      if (char32_t const made = compose(codes[starter], code, tables)) {
        codes[starter] = made;
        continue;
      }
    }
    if (own == 0) starter = out;
    last = own;
    codes[out++] = code;
  }
  for (std::size_t i = 0; i < out; ++i) append_utf8(result, codes[i]);
}

}  // namespace detail

/// Normalization form C of the valid characters of `text`. Bytes that are not UTF-8 stay as they are and separate.
inline std::string normalize_nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  auto const& steady = detail::composition().steady;
  std::size_t given = 0, before = 0, at = 0;  // `before`: where the steady character before `at` begins
  while (at < text.size()) {
    std::size_t const length = static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_front(text.substr(at)).length;
    if (length == 0 || steady[decode_utf8(text.data() + at).value]) {
      before = length == 0 ? at + 1 : at;  // nothing composes with a damaged byte
      at += length == 0 ? 1 : length;
      continue;
    }
    std::size_t end = at;
    while (end < text.size()) {
      std::size_t const next = utf8_front(text.substr(end)).length;
      if (next == 0 || steady[decode_utf8(text.data() + end).value]) break;
      end += next;
    }
    result.append(text.substr(given, before - given));
    detail::append_nfc(result, text.substr(before, end - before));
    given = before = at = end;
  }
  return result.append(text.substr(given));
}

}  // namespace tutti::data
