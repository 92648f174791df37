// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tokens that are found in the text before anything else is cut: marks such as `<|endoftext|>`.

#include <tutti/data/unicode.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

/// A token that no merge makes; it stands for a mark such as `<|endoftext|>`. The flags are those of Hugging Face's
/// added tokens.
struct SpecialToken {
  std::string content;
  std::int32_t id = 0;
  bool lstrip = false, rstrip = false;  ///< spaces before it, behind it, belong to it
  bool single_word = false;             ///< found only where no letter, digit or underscore touches it
  bool normalized = false;              ///< looked for in the normalized text
  bool special = true;                  ///< stands for no text; false: an added word, found whatever `Marks` says

  friend bool operator==(SpecialToken const&, SpecialToken const&) = default;
};

/// What `encode` does with marks in the text: data should not be able to end a document, so plain text is the default.
enum class Marks : unsigned char { as_text, as_tokens };

namespace detail {

/// Finds added tokens: the leftmost, among those at one place the longest.
class AddedTokens {
 public:
  void add(SpecialToken token) {
    auto& here = by_first_[static_cast<unsigned char>(token.content[0])];
    auto const longer = [](SpecialToken const& a, SpecialToken const& b) {
      return a.content.size() > b.content.size();
    };
    here.insert(std::upper_bound(here.begin(), here.end(), token, longer), std::move(token));
    empty_ = false;
  }
  bool empty() const noexcept { return empty_; }

  /// Calls `plain(part)` for what lies between marks and `mark(token)` for each mark, in order.
  template <class Plain, class Mark>
  void split(std::string_view text, Marks marks, Plain&& plain, Mark&& mark) const {
    std::size_t given = 0, at = 0;
    while (!empty_ && at < text.size()) {
      auto const& candidates = by_first_[static_cast<unsigned char>(text[at])];
      SpecialToken const* found = nullptr;
      for (auto next = candidates.begin(); next != candidates.end() && found == nullptr; ++next)
        if (text.substr(at).starts_with(next->content)) found = &*next;
      if (found == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at += found->content.size();
      if (found->special && marks == Marks::as_text) continue;
      if (found->single_word && (touches_before(text, begin) || touches_behind(text, end))) continue;
      if (found->lstrip) begin = spaces_before(text, begin);
      if (found->rstrip) end = spaces_behind(text, end);
      begin = std::max(begin, given);
      if (begin > given) plain(text.substr(given, begin - given));
      mark(*found);
      given = at = std::max(end, at);
    }
    if (given < text.size()) plain(text.substr(given));
  }

 private:
  static std::size_t character_before(std::string_view text, std::size_t at) noexcept {
    std::size_t const least = at < 4 ? 0 : at - 4;
    for (std::size_t begin = at; begin > least;)
      if ((static_cast<unsigned char>(text[--begin]) & 0xC0u) != 0x80u)
        return utf8_front(text.substr(begin)).length == at - begin ? begin : at;
    return at;
  }
  static bool is_word(std::string_view text, std::size_t at) {
    if (utf8_front(text.substr(at)).length == 0) return false;
    char32_t const code = decode_utf8(text.data() + at).value;
    CharClass const kind = char_classes()[code];
    return kind == CharClass::letter || kind == CharClass::number || code == '_' || composition().combining[code] != 0;
  }
  static bool is_space(std::string_view text, std::size_t at) {
    return utf8_front(text.substr(at)).length != 0 &&
           char_classes()[decode_utf8(text.data() + at).value] >= CharClass::space;
  }
  static bool touches_before(std::string_view text, std::size_t at) {
    std::size_t const before = character_before(text, at);
    return before != at && is_word(text, before);
  }
  static bool touches_behind(std::string_view text, std::size_t at) { return at != text.size() && is_word(text, at); }
  static std::size_t spaces_before(std::string_view text, std::size_t at) {
    for (std::size_t before; (before = character_before(text, at)) != at && is_space(text, before);) at = before;
    return at;
  }
  static std::size_t spaces_behind(std::string_view text, std::size_t at) {
    while (at != text.size() && is_space(text, at)) at += utf8_front(text.substr(at)).length;
    return at;
  }

  std::array<std::vector<SpecialToken>, 256> by_first_;
  bool empty_ = true;
};

}  // namespace detail
}  // namespace tutti::data
