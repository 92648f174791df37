// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `concat`: the text of messages, from its parts. A chain of std::string's operator+ costs the compiler three times as
/// much wherever it stands, used or not (docs/adr/0004-what-an-include-costs.md).

#include <concepts>
#include <string>
#include <string_view>

namespace tutti {

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
template <class N>
  requires(std::integral<N> || std::floating_point<N>)
void append(std::string& text, N part) {
  text += std::to_string(part);
}

}  // namespace detail

/// The parts one after another: texts, characters, and numbers as std::to_string has them.
template <class... Parts>
std::string concat(Parts const&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

}  // namespace tutti
