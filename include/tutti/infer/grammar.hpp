// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Grammars in GBNF, the notation of llama.cpp: parsed, checked and kept as flat rules that a matcher walks on.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

/// What a grammar from an unknown hand may cost.
struct GrammarLimits {
  std::size_t bytes = 64 << 10;    ///< of its text
  int depth = 256;                 ///< of groups inside of groups
  std::size_t elements = 1 << 18;  ///< after repetitions are written out
  std::int64_t repetitions = 10'000;
};

/// What a position of a rule asks for.
struct GrammarElement {
  enum class Kind : std::uint8_t { characters, rule, token, end };
  struct Range {
    char32_t first, last;
    friend bool operator==(Range const&, Range const&) = default;
  };

  Kind kind = Kind::end;    ///< end: of an alternative
  bool negated = false;     ///< any character, or token, but these
  std::int32_t number = 0;  ///< of the rule or the token
  std::vector<Range> ranges = {};

  bool takes(char32_t character) const noexcept {
    bool const inside = std::any_of(ranges.begin(), ranges.end(),
                                    [&](Range const& r) { return r.first <= character && character <= r.last; });
    return inside != negated;
  }
  /// Whether some character from `first` to `last` is taken. Exact unless negated ranges cover the span together.
  bool takes_some(char32_t first, char32_t last) const noexcept {
    if (!negated)
      return std::any_of(ranges.begin(), ranges.end(),
                         [&](Range const& r) { return r.first <= last && first <= r.last; });
    return std::none_of(ranges.begin(), ranges.end(),
                        [&](Range const& r) { return r.first <= first && last <= r.last; });
  }
};

/// Rules `name ::= alternatives`, of which `root` is the start. Literals "..." with escapes, classes [a-z] and [^...],
/// `.`, groups, `|`, `* + ? {m} {m,} {m,n}`, `#` comments, tokens `<[id]>` and `!<[id]>`. A rule ends with its line,
/// unless the line ends inside a group or at a `|`.
/// Source: the GBNF guide of llama.cpp, 2025.
class Grammar {
 public:
  /// Errors: format, with the line and what is wrong: no root, an unknown rule, left recursion, limits.
  explicit Grammar(std::string_view text, GrammarLimits limits = {}) : text_(text), limits_(limits) {
    if (text.size() > limits.bytes) fail(concat("it has ", text.size(), " bytes, more than ", limits.bytes));
    parse();
    check();
    text_ = {};  // the caller's
  }

  /// Positions where the alternatives of a rule begin.
  std::vector<std::int32_t> const& alternatives(std::int32_t rule) const {
    return rules_[static_cast<std::size_t>(rule)].alternatives;
  }
  GrammarElement const& at(std::int32_t position) const { return elements_[static_cast<std::size_t>(position)]; }
  std::int32_t root() const noexcept { return root_; }
  std::size_t elements() const noexcept { return elements_.size(); }

 private:
  using Kind = GrammarElement::Kind;
  using Sequence = std::vector<GrammarElement>;
  struct Rule {
    std::string name;
    std::vector<std::int32_t> alternatives = {};
    bool defined = false;
    std::size_t used_at = 0;  // in the text
  };

  [[noreturn]] void fail(std::string const& what) const {
    std::size_t const seen = std::min(at_, text_.size());
    auto const line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(seen), '\n');
    throw Error(ErrorKind::format, "Grammar", concat("the grammar is refused at line ", line, ": ", what));
  }

  // ---- Text ----

  bool ends() const noexcept { return at_ >= text_.size(); }
  char peek() const noexcept { return ends() ? '\0' : text_[at_]; }
  /// Blanks and comments; line ends too where `lines`.
  void skip(bool lines) {
    while (!ends()) {
      char const c = peek();
      if (c == '#') {
        while (!ends() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  static bool is_name(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string_view name() {
    std::size_t const begin = at_;
    while (is_name(peek())) ++at_;
    if (begin == at_) fail(concat("a name or an element is expected, not ", ends() ? "the end" : shown()));
    return text_.substr(begin, at_ - begin);
  }
  std::string shown() const { return "'" + std::string(1, peek()) + "'"; }
  std::int64_t number() {
    std::int64_t value = 0;
    auto const [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (code != std::errc() || value < 0) fail("a whole number is expected");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  void expect(char c) {
    if (peek() != c) fail(concat("'", std::string(1, c), "' is expected, not ", ends() ? "the end" : shown()));
    ++at_;
  }
  /// One character, of several bytes or an escape.
  char32_t character() {
    if (ends()) fail("a literal or class has no end");
    auto const byte = static_cast<unsigned char>(text_[at_++]);
    if (byte == '\\') return escape();
    int const more = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    if (byte >= 0x80 && (byte < 0xc2 || byte > 0xf4)) fail("it is not UTF-8");
    char32_t value = more == 0 ? byte : byte & (0x3fu >> more);
    for (int i = 0; i < more; ++i) {
      if (ends() || (static_cast<unsigned char>(peek()) & 0xc0u) != 0x80u) fail("it is not UTF-8");
      value = value << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3fu);
    }
    return value;
  }
  char32_t escape() {
    if (ends()) fail("an escape has no end");
    char const c = text_[at_++];
    int const digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      switch (c) {
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^': return static_cast<unsigned char>(c);
        default: fail(concat("there is no escape \\", std::string(1, c)));
      }
    }
    std::uint32_t value = 0;
    if (at_ + static_cast<std::size_t>(digits) > text_.size()) fail("an escape has no end");
    auto const [end, code] = std::from_chars(text_.data() + at_, text_.data() + at_ + digits, value, 16);
    if (code != std::errc() || end != text_.data() + at_ + digits)
      fail(concat("\\", std::string(1, c), " takes ", digits, " hexadecimal digits"));
    if (value > 0x10ffff) fail("an escape is beyond the last character, U+10FFFF");
    at_ += static_cast<std::size_t>(digits);
    return value;
  }

  // ---- Rules ----

  std::int32_t rule_of(std::string_view name) {
    auto const [found, is_new] = numbers_.emplace(name, static_cast<std::int32_t>(rules_.size()));
    if (is_new) rules_.push_back({.name = std::string(name), .used_at = at_});
    return found->second;
  }
  std::int32_t new_rule() {
    rules_.push_back({.name = {}, .defined = true, .used_at = at_});
    return static_cast<std::int32_t>(rules_.size()) - 1;
  }
  void add_alternative(std::int32_t rule, Sequence const& sequence) {
    if (elements_.size() + sequence.size() + 1 > limits_.elements)
      fail(concat("with its repetitions written out it has more than ", limits_.elements, " elements"));
    rules_[static_cast<std::size_t>(rule)].alternatives.push_back(static_cast<std::int32_t>(elements_.size()));
    elements_.insert(elements_.end(), sequence.begin(), sequence.end());
    elements_.push_back({});
  }

  void parse() {
    for (skip(true); !ends(); skip(true)) {
      std::string const rule_name(name());
      skip(false);
      for (char const c : {':', ':', '='}) expect(c);
      std::int32_t const rule = rule_of(rule_name);
      if (std::exchange(rules_[static_cast<std::size_t>(rule)].defined, true))
        fail(concat("rule ", rule_name, " is defined twice"));
      skip(true);
      alternatives(rule, 0);
      skip(false);
      if (!ends() && peek() != '\n' && peek() != '\r') fail(concat("an element is expected, not ", shown()));
    }
  }
  void alternatives(std::int32_t rule, int depth) {
    for (;;) {
      add_alternative(rule, sequence(depth));
      if (peek() != '|') return;
      ++at_;
      skip(true);
    }
  }
  Sequence sequence(int depth) {
    Sequence result;
    std::size_t last = 0;  // where the element that a repetition is of begins
    for (;; skip(depth > 0)) {
      char const c = peek();
      if (c == '"') {
        last = result.size();
        for (++at_; peek() != '"';) {
          char32_t const character_ = character();
          result.push_back({.kind = Kind::characters, .ranges = {{character_, character_}}});
        }
        ++at_;
      } else if (c == '[') {
        last = result.size();
        result.push_back(character_class());
      } else if (c == '.') {
        ++at_;
        last = result.size();
        result.push_back({.kind = Kind::characters, .negated = true});
      } else if (c == '<' || c == '!') {
        last = result.size();
        result.push_back(token());
      } else if (c == '(') {
        if (depth >= limits_.depth) fail(concat("groups are more than ", limits_.depth, " deep"));
        ++at_;
        skip(true);
        std::int32_t const group = new_rule();
        alternatives(group, depth + 1);
        skip(true);
        expect(')');
        last = result.size();
        result.push_back({.kind = Kind::rule, .number = group});
      } else if (is_name(c)) {
        last = result.size();
        result.push_back({.kind = Kind::rule, .number = rule_of(name())});
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (last >= result.size()) fail(concat(shown(), " repeats nothing"));
        repeat(result, last);
        last = result.size();  // a second sign would repeat what is repeated
      } else {
        return result;
      }
    }
  }
  GrammarElement character_class() {
    ++at_;
    GrammarElement element{.kind = Kind::characters};
    if (peek() == '^') ++at_, element.negated = true;
    while (peek() != ']') {
      char32_t const first = character();
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (last < first) fail("a class has a range that ends before it begins");
      element.ranges.push_back({first, last});
    }
    ++at_;
    return element;
  }
  GrammarElement token() {
    GrammarElement element{.kind = Kind::token};
    if (peek() == '!') ++at_, element.negated = true;
    expect('<');
    if (peek() != '[') fail("a token is written by its number: <[123]>");
    ++at_;
    std::int64_t const id = number();
    if (id > INT32_MAX) fail("there is no token of such a number");
    element.number = static_cast<std::int32_t>(id);
    expect(']');
    expect('>');
    return element;
  }
  /// Replaces what stands behind `begin` by so many of it, as rules.
  void repeat(Sequence& sequence, std::size_t begin) {
    std::int64_t least = 0, most = -1;  // -1: any number
    char const sign = text_[at_++];
    if (sign == '+') least = 1;
    if (sign == '?') most = 1;
    if (sign == '{') {
      skip(false);
      least = most = number();
      skip(false);
      if (peek() == ',') {
        ++at_;
        skip(false);
        most = peek() == '}' ? -1 : number();
        skip(false);
      }
      expect('}');
      if (most >= 0 && most < least) fail(concat("{", least, ",", most, "} ends before it begins"));
      if (std::max(least, most) > limits_.repetitions)
        fail(concat("something is repeated more than ", limits_.repetitions, " times"));
    }
    Sequence const once(sequence.begin() + static_cast<std::ptrdiff_t>(begin), sequence.end());
    sequence.resize(begin);
    std::size_t const copies = static_cast<std::size_t>(std::max(least, most)) + 1;
    if (elements_.size() + sequence.size() + copies * (once.size() + 2) > limits_.elements)
      fail(concat("with its repetitions written out it has more than ", limits_.elements, " elements"));
    for (std::int64_t i = 0; i < least; ++i) sequence.insert(sequence.end(), once.begin(), once.end());
    if (most == least) return;
    // rest ::= once rest |  , or the same for each of those that may follow
    std::int32_t next = -1;
    for (std::int64_t left = most < 0 ? 1 : most - least; left > 0; --left) {
      std::int32_t const rest = new_rule();
      Sequence more = once;
      if (most < 0) more.push_back({.kind = Kind::rule, .number = rest});
      else if (next >= 0) more.push_back({.kind = Kind::rule, .number = next});
      add_alternative(rest, more);
      add_alternative(rest, {});
      next = rest;
    }
    sequence.push_back({.kind = Kind::rule, .number = next});
  }

  // ---- Checks ----

  void check() {
    at_ = text_.size();
    auto const found = numbers_.find("root");
    if (found == numbers_.end() || !rules_[static_cast<std::size_t>(found->second)].defined)
      fail("there is no rule root, with which it begins");
    root_ = found->second;
    for (Rule const& rule : rules_)
      if (!rule.defined) {
        at_ = rule.used_at;
        fail(concat("rule ", rule.name, " is used and not defined"));
      }
    std::vector<bool> empty(rules_.size(), false);  // whether a rule can be nothing
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t r = 0; r < rules_.size(); ++r)
        for (std::int32_t position : rules_[r].alternatives) {
          while (at(position).kind == Kind::rule && empty[static_cast<std::size_t>(at(position).number)]) ++position;
          if (at(position).kind == Kind::end && !empty[r]) empty[r] = changed = true;
        }
    }
    refuse_left_recursion(empty);
  }
  /// A rule that begins with itself would be expanded without end.
  void refuse_left_recursion(std::vector<bool> const& empty) {
    std::vector<std::vector<std::int32_t>> begins(rules_.size());
    for (std::size_t r = 0; r < rules_.size(); ++r)
      for (std::int32_t position : rules_[r].alternatives)
        for (; at(position).kind == Kind::rule; ++position) {
          begins[r].push_back(at(position).number);
          if (!empty[static_cast<std::size_t>(at(position).number)]) break;
        }
    std::vector<std::uint8_t> state(rules_.size(), 0);  // 1: under way, 2: done
    for (std::size_t start = 0; start < rules_.size(); ++start) {
      if (state[start] != 0) continue;
      std::vector<std::pair<std::size_t, std::size_t>> path{{start, 0}};  // a rule, and which of its beginnings is next
      state[start] = 1;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == begins[rule].size()) {
          state[rule] = 2;
          path.pop_back();
          continue;
        }
        auto const child = static_cast<std::size_t>(begins[rule][next++]);
        if (state[child] == 1) {
          at_ = rules_[child].used_at;
          fail(concat("rule ", rules_[child].name.empty() ? "of a group" : rules_[child].name,
                      " begins with itself. Write the repetition behind"));
        }
        if (state[child] == 0) {
          state[child] = 1;
          path.push_back({child, 0});
        }
      }
    }
  }

  std::string_view text_;
  GrammarLimits limits_;
  std::size_t at_ = 0;
  std::vector<Rule> rules_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
  std::vector<GrammarElement> elements_;
  std::int32_t root_ = 0;
};

}  // namespace tutti::infer
