// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Reads MLIR's tokens, types and attributes from text that anybody may have written.
/// Source  the MLIR language reference, https://mlir.llvm.org/docs/LangRef

#include <tutti/graph/stablehlo/numbers.hpp>
#include <tutti/graph/stablehlo/text.hpp>
#include <tutti/graph/stablehlo/writer.hpp>

#include <charconv>

namespace tutti::graph::stablehlo::text {

/// A place in the text. Everything skips blanks and comments before it.
class Cursor {
 public:
  Cursor(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  int line() const noexcept { return line_; }
  std::string_view file() const noexcept { return file_; }
  /// The operation that messages name.
  void name_operation(std::string_view name) { operation_ = name; }
  [[noreturn]] void fail(std::string_view sentence, ErrorKind kind = ErrorKind::format) const {
    refuse(file_, line_, operation_, kind, sentence);
  }

  bool ended() {
    skip();
    return at_ == text_.size();
  }
  /// '\0' at the end.
  char peek() { return ended() ? '\0' : text_[at_]; }
  /// Whether this comes next; what is told so is behind.
  bool accept(std::string_view sign) {
    skip();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }
  void expect(std::string_view sign) {
    if (!accept(sign)) fail(concat("'", sign, "' is missing", found()));
  }
  /// Letters, digits, '_', '$', '.' that begin with no digit; empty where there are none.
  std::string_view word() {
    skip();
    std::size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || (end > at_ && (is_digit(text_[end]) || text_[end] == '.'))))
      ++end;
    return taken(end);
  }
  bool comes_word(std::string_view wanted) {
    std::size_t const before = (skip(), at_);
    bool const comes = word() == wanted;
    at_ = before;
    return comes;
  }
  bool accept_word(std::string_view wanted) {
    std::size_t const before = (skip(), at_);
    if (word() == wanted) return true;
    at_ = before;
    return false;
  }
  void expect_word(std::string_view wanted) {
    if (!accept_word(wanted)) fail(concat("'", wanted, "' is missing", found()));
  }
  /// What stands behind % @ or #: letters, digits and signs.
  std::string name(char sign) {
    expect(std::string_view(&sign, 1));
    if (at_ < text_.size() && text_[at_] == '"') return string();
    std::size_t end = at_;
    while (end < text_.size() &&
           (is_letter(text_[end]) || is_digit(text_[end]) || text_[end] == '.' || text_[end] == '-'))
      ++end;
    if (end == at_) fail(concat("a name is missing behind '", std::string_view(&sign, 1), "'"));
    return std::string(taken(end));
  }
  std::string string() {
    expect("\"");
    std::string found;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (hexadecimal(c) >= 0 && at_ + 1 < text_.size() && hexadecimal(text_[at_ + 1]) >= 0)
          c = static_cast<char>(16 * hexadecimal(c) + hexadecimal(text_[++at_]));
        else if (c == 'n') c = '\n';
        else if (c == 't') c = '\t';
      }
      found += c;
    }
    if (at_ == text_.size()) fail("a string does not end");
    ++at_;
    return found;
  }
  std::int64_t integer() {
    std::string_view const digits = number();
    std::int64_t value = 0;
    auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
      fail(concat("'", digits, "' is no integer"));
    return value;
  }
  /// [1, 2]
  List<std::int64_t> integers() {
    List<std::int64_t> found;
    expect("[");
    while (peek() != ']') {
      found.push_back(integer());
      if (!accept(",")) break;
    }
    expect("]");
    return found;
  }

  TensorType tensor() {
    std::string_view const what = word();
    if (what != "tensor") fail(concat("a type of tensors is missing", what.empty() ? found() : concat(": ", what)));
    expect("<");
    List<std::int64_t> extents;
    while (is_digit(peek())) {
      std::size_t end = at_;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      std::string_view const digits = taken(end);
      std::int64_t extent = 0;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), extent).ec != std::errc() ||
          extents.size() == std::size_t{Shape::max_rank})
        fail(concat("a tensor has up to ", Shape::max_rank, " extents of 63 bits"));
      extents.push_back(extent);
      expect("x");
    }
    if (peek() == '?' || peek() == '*') fail("shapes must be fixed. Export with sizes", ErrorKind::unavailable);
    TensorType type{element(word()), {}};
    try {
      type.shape = Shape(extents);
    } catch (Error const&) {
      fail("a tensor has more elements than 63 bits count");
    }
    if (peek() == ',') skip_until(">");
    expect(">");
    return type;
  }
  DType element(std::string_view word) const {
    for (int i = 0; i < dtype_count; ++i)
      if (auto const dtype = static_cast<DType>(i); !word.empty() && element_type(dtype) == word) return dtype;
    if (word == "index") return DType::int64;
    fail(concat("elements of type '", word, "' are not supported"), ErrorKind::unavailable);
  }

  /// What stands between brackets that the text has just opened is passed over, with them.
  void skip_balanced() {
    List<char> open;
    do {
      char const c = peek();
      if (ended()) fail("a bracket is not closed");
      if (c == '"') {
        string();
        continue;
      }
      ++at_;
      if (c == '-' && at_ < text_.size() && text_[at_] == '>') ++at_;
      else if (c == '(' || c == '[' || c == '{' || c == '<') open.push_back(c);
      else if (c == ')' || c == ']' || c == '}' || c == '>') {
        if (open.empty()) fail("a bracket is closed that was not opened");
        open.pop_back();
      }
    } while (!open.empty());
  }
  /// loc("name"...) and loc(#loc1); what it says, or empty.
  std::string location() {
    std::string said;
    if (!accept_word("loc")) return said;
    if (peek() != '(') fail("a location is missing");
    std::size_t const open = at_++;
    int const line = line_;
    if (peek() == '"') said = string();
    if (peek() == ':') said.clear();  // a place in a file
    if (said.empty() && peek() == '#') said = concat('#', name('#'));
    at_ = open;
    line_ = line;
    skip_balanced();
    return said;
  }

  /// `typed`: numbers may have a type behind them, ": i64".
  Attribute attribute(int depth = 0, bool typed = true) {
    if (depth > 32) fail("attributes are nested too deep");
    using Kind = Attribute::Kind;
    Attribute found;
    char const c = peek();
    if (c == '"') {
      found.kind = Kind::string;
      found.string = string();
    } else if (c == '[') {
      found.kind = Kind::list;
      accept("[");
      while (peek() != ']') {
        found.items.push_back(attribute(depth + 1));
        if (!accept(",")) break;
      }
      expect("]");
    } else if (c == '{') {
      found = fields("{", "}", depth);
    } else if (c == '@') {
      found.kind = Kind::string;
      found.string = name('@');
      while (accept("::")) name('@');
    } else if (c == '#') {
      name('#');
      if (at_ < text_.size() && text_[at_] == '<') {
        std::size_t const open = at_;
        int const line = line_;
        accept("<");
        if (!word().empty() && peek() == '=') {
          at_ = open;
          line_ = line;
          return fields("<", ">", depth);
        }
        at_ = open;
        line_ = line;
        skip_balanced();
        found.kind = Kind::string;
        found.string = text_.substr(open + 1, at_ - open - 2);
      }
    } else if (c == '<' || c == '(') {
      skip_balanced();
      if (accept("->")) attribute(depth + 1);
    } else if (is_digit(c) || c == '-' || c == '+') {
      number_attribute(found, typed, depth);
    } else if (c == '!') {
      name('!');
      if (at_ < text_.size() && text_[at_] == '<') skip_balanced();
    } else {
      word_attribute(found, depth);
    }
    return found;
  }
  /// {key = value, key}
  Attribute fields(std::string_view open, std::string_view close, int depth = 0) {
    if (depth > 32) fail("attributes are nested too deep");
    Attribute found;
    found.kind = Attribute::Kind::fields;
    expect(open);
    while (!ended() && !text_.substr(at_).starts_with(close)) {
      std::string key = peek() == '"' ? string() : std::string(word());
      if (key.empty()) fail(concat("the name of an attribute is missing", this->found()));
      found.keys.push_back(std::move(key));
      found.items.push_back(accept("=") ? attribute(depth + 1) : Attribute{});
      if (!accept(",")) break;
    }
    expect(close);
    return found;
  }

 protected:
  static bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
  }
  void skip_until(std::string_view sign) {
    while (!ended() && !text_.substr(at_).starts_with(sign))
      if (char const c = text_[at_]; c == '<' || c == '(' || c == '[' || c == '{' || c == '"') skip_balanced();
      else ++at_;
  }

 private:
  static int hexadecimal(char c) noexcept {
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
  void skip() {
    for (; at_ < text_.size(); ++at_) {
      char const c = text_[at_];
      if (c == '\n') ++line_;
      else if (c == '/' && text_.substr(at_).starts_with("//")) {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c != ' ' && c != '\t' && c != '\r') return;
    }
  }
  std::string_view taken(std::size_t end) noexcept {
    std::string_view const part = text_.substr(at_, end - at_);
    at_ = end;
    return part;
  }
  std::string found() {
    return ended() ? std::string(" at the end of the text") : concat(" before '", text_.substr(at_, 12), "'");
  }
  /// A number as it is written.
  std::string_view number() {
    skip();
    std::size_t end = at_;
    if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    bool const bits = text_.substr(end).starts_with("0x") && end + 2 < text_.size() && hexadecimal(text_[end + 2]) >= 0;
    if (bits) end += 2;
    for (; end < text_.size(); ++end) {
      char const c = text_[end];
      bool const sign = !bits && (c == '-' || c == '+') && (text_[end - 1] == 'e' || text_[end - 1] == 'E');
      if (bits ? hexadecimal(c) < 0 : !is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
    }
    return taken(end);
  }
  void number_attribute(Attribute& found, bool typed, int depth) {
    std::string_view const digits = number();
    bool const whole = digits.find_first_of(".eE") == std::string_view::npos;
    found.kind = whole ? Attribute::Kind::integer : Attribute::Kind::real;
    char const *const begin = digits.data() + (digits.starts_with('+') ? 1 : 0), *const end =
                                                                                     digits.data() + digits.size();
    if (digits.find("0x") != std::string_view::npos) found.kind = Attribute::Kind::other;
    else if (whole ? std::from_chars(begin, end, found.integer).ec != std::errc()
                   : std::from_chars(begin, end, found.real).ec != std::errc())
      fail(concat("'", digits, "' is no number"));
    if (typed && accept(":")) attribute(depth + 1);
  }
  void word_attribute(Attribute& found, int depth) {
    std::string_view const what = word();
    if (what.empty()) fail(concat("the value of an attribute is missing", this->found()));
    found.kind = Attribute::Kind::string;
    found.string = what;
    bool const opens = at_ < text_.size() && text_[at_] == '<';
    if (what == "true" || what == "false") {
      found.kind = Attribute::Kind::integer;
      found.integer = what == "true";
    } else if (what == "array" && opens) {
      found.kind = Attribute::Kind::list;
      accept("<");
      word();
      if (accept(":"))
        do found.items.push_back(attribute(depth + 1));
        while (accept(","));
      expect(">");
    } else if (what == "dense" && opens) {
      dense(found);
    } else if (what == "dense_resource") {
      fail("numbers outside of the text are not supported. Print the module with its constants",
           ErrorKind::unavailable);
    } else if (opens) {
      found.kind = Attribute::Kind::other;
      skip_balanced();
    } else if (peek() == '(' && (what == "loc" || what == "affine_map")) {
      skip_balanced();
    }
  }

  void dense(Attribute& found) {
    found.kind = Attribute::Kind::dense;
    accept("<");
    List<std::string_view> literals;
    std::string packed;
    bool const is_packed = peek() == '"';
    if (is_packed) packed = string();
    else if (peek() != '>') {
      int depth = 0;
      do {
        while (accept("[")) ++depth;
        if (peek() == '(') fail("complex numbers are not supported", ErrorKind::unavailable);
        if (peek() != ']') literals.push_back(is_letter(peek()) ? word() : number());
        while (depth > 0 && accept("]")) --depth;
      } while (accept(","));
      if (depth != 0) fail("a list of numbers is not closed");
    }
    expect(">");
    expect(":");
    found.type = tensor();
    DType const dtype = found.type.dtype;
    auto const keep = [&](std::optional<double> number, std::string_view literal) {
      if (!number) fail(concat("'", literal, "' is no number of type ", tutti::name(dtype)));
      if (!is_held(dtype, *number))
        fail(concat(tutti::name(dtype), " constants beyond 2^53 are supported as one number for all elements alone"),
             ErrorKind::unavailable);
      found.numbers.push_back(*number);
    };
    if (is_packed) {
      auto const numbers = unpacked(dtype, found.type.shape.size(), packed);
      if (!numbers) fail("a constant's bytes are damaged");
      for (double const number : *numbers) keep(number, {});
    } else if (auto const wide = literals.size() == 1 ? wide_number_of(dtype, literals[0]) : std::nullopt;
               wide && !is_held(dtype, number_of(dtype, literals[0]).value_or(0))) {
      found.wide = *wide;
      return;
    } else {
      for (std::string_view const literal : literals) keep(number_of(dtype, literal), literal);
    }
    std::size_t const count = found.numbers.size();
    if (count != 1 && static_cast<std::int64_t>(count) != found.type.shape.size())
      fail(concat(count, " numbers for a tensor of ", found.type.shape.size()));
  }
  std::string_view text_, file_, operation_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace tutti::graph::stablehlo::text
