// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `concat`: the text of messages, from its parts. A chain of std::string's operator+ costs the compiler three times as
/// much wherever it stands, used or not (docs/adr/0004-what-an-include-costs.md).

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace tutti {

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
template <std::integral N>
void append(std::string& text, N part) {
  text += std::to_string(part);
}
template <std::floating_point N>
void append(std::string& text, N part) {
  char digits[32];
  text.append(digits, static_cast<std::size_t>(std::snprintf(digits, sizeof digits, "%g", static_cast<double>(part))));
}

}  // namespace detail

/// The parts one after another: texts, characters, and numbers, six digits of those with fractions.
template <class... Parts>
std::string concat(Parts const&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

}  // namespace tutti
