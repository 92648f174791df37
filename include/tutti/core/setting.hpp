// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Settings of programs and backends: how their values are spelled, what they may be, and how that is said. A family of
/// settings is one function that calls another with each row: what people call it, its value, and what that may be.
/// Flags, configuration files, environment variables, checks and documentation all read the rows.

#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti::setting {

/// How the values of an enumeration are spelled, in the order of its enumerators; specialise it.
template <class E>
inline constexpr std::array<std::string_view, 0> spelling{};

template <class E>
concept Enumeration = std::is_enum_v<E> && !spelling<E>.empty();

/// "float32, bfloat16 or int8".
template <Enumeration E>
std::string choices() {
  std::string text;
  for (std::size_t i = 0; i < spelling<E>.size(); ++i) {
    if (i > 0) text += i + 1 == spelling<E>.size() ? " or " : ", ";
    text += spelling<E>[i];
  }
  return text;
}

/// A value of an enumeration as people write it. Text that spells none is kept as it is, so that it can be refused
/// where its origin is known.
template <Enumeration E>
class Choice {
 public:
  Choice(E value) : value_(value), text_(spelling<E>[static_cast<std::size_t>(value)]) {}
  explicit Choice(std::string text) : known_(false), text_(std::move(text)) {
    for (std::size_t i = 0; i < spelling<E>.size(); ++i)
      if (spelling<E>[i] == text_) value_ = static_cast<E>(i), known_ = true;
  }
  Choice() : Choice(E{}) {}

  operator E() const noexcept { return value_; }
  std::string const& text() const noexcept { return text_; }
  bool known() const noexcept { return known_; }
  friend bool operator==(Choice const& a, Choice const& b) noexcept { return a.text_ == b.text_; }
  friend bool operator==(Choice const& a, E b) noexcept { return a.known_ && a.value_ == b; }

  /// For JSON libraries that find these by argument: the value as text.
  template <class Json>
  friend void to_json(Json& json, Choice const& choice) {
    json = choice.text_;
  }
  template <class Json>
  friend void from_json(Json const& json, Choice& choice) {
    choice = Choice(json.template get<std::string>());
  }

 private:
  E value_{};
  bool known_ = true;
  std::string text_;
};

/// "float32|bfloat16|int8", for a line of help.
template <Enumeration E>
std::string alternatives(Choice<E> const&) {
  std::string text;
  for (std::string_view const one : spelling<E>) text += (text.empty() ? "" : "|") + std::string(one);
  return text;
}

/// A number as people write it.
template <class Number>
requires std::integral<Number> || std::floating_point<Number> std::string text_of(Number value) {
  if constexpr (std::integral<Number>) return std::to_string(value);
  else {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);
    return text;
  }
}

/// What a number may be. `most` itself is excluded where `below` is set; nothing is said of a bound that the type has.
template <class T>
struct Range {
  T least = std::numeric_limits<T>::lowest(), most = std::numeric_limits<T>::max();
  bool below = false;

  constexpr bool holds(T value) const noexcept { return value >= least && (below ? value < most : value <= most); }
  /// "at least 1", "at least 0 and below 1", "between 0 and 1".
  std::string text() const {
    bool const low = least != std::numeric_limits<T>::lowest(), high = most != std::numeric_limits<T>::max();
    std::string const bottom = text_of(least), top = text_of(most);
    if (low && high && !below) return "between " + bottom + " and " + top;
    return (low ? "at least " + bottom : "") + (low && high ? " and " : "") +
           (high ? (below ? "below " : "at most ") + top : "");
  }
  /// What a value that it does not hold must be: of whole numbers the bound that is exceeded.
  std::string text_for(T value) const {
    if (!std::integral<T> || holds(value)) return text();
    return value < least ? "at least " + text_of(least) : "at most " + text_of(most);
  }
};

/// What text may be.
struct Text {
  bool empty = true;  ///< when it was given at all
  bool utf8 = true;
};

/// What true or false, and a value of an enumeration, may be: anything that is one.
struct Any {};

/// All of `text` as a number: neither spaces in front nor hexadecimal digits, which the C library takes.
inline bool parse(std::string_view text, double& value) {
  std::string const copy(text);
  char* end = nullptr;
  value = std::strtod(copy.c_str(), &end);
  return copy.find_first_not_of("0123456789.+-eE") == std::string::npos && !copy.empty() && *end == 0;
}
inline bool parse(std::string_view text, std::int64_t& value) {
  std::string const copy(text);
  char* end = nullptr;
  errno = 0;
  value = std::strtoll(copy.c_str(), &end, 10);
  return copy.find_first_not_of("0123456789-") == std::string::npos && !copy.empty() && *end == 0 && errno == 0;
}
template <Enumeration E>
bool parse(std::string_view text, E& value) {
  for (std::size_t i = 0; i < spelling<E>.size(); ++i)
    if (text == spelling<E>[i]) {
      value = static_cast<E>(i);
      return true;
    }
  return false;
}

}  // namespace tutti::setting
