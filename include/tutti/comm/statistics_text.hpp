// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Numbers as text, for the table and the JSON of statistics.

#include <tutti/core/list.hpp>

#include <cstdio>
#include <string>
#include <string_view>

namespace tutti::comm::detail {

/// "1.25 ms"; three digits.
inline std::string scaled(double value, char const* const (&units)[5], double step) {
  int unit = 0;
  while (unit < 4 && value >= 999.5) {
    value /= step;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", value >= 99.95 || value == 0 ? 0 : value >= 9.995 ? 1 : 2, value,
                units[unit]);
  return text;
}
inline std::string time_text(double ns) {
  constexpr char const* units[5] = {"ns", "us", "ms", "s", "ks"};
  return scaled(ns, units, 1000);
}
inline std::string bytes_text(double bytes) {
  constexpr char const* units[5] = {"B", "kB", "MB", "GB", "TB"};
  return scaled(bytes, units, 1000);
}
inline std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

/// A line of a table: the first cell to the left, the others to the right.
inline std::string line(std::string_view first, List<std::string> const& cells) {
  std::string text(first);
  text.resize(text.size() < 20 ? 20 : text.size(), ' ');
  for (std::string const& cell : cells) text += std::string(cell.size() < 11 ? 11 - cell.size() : 1, ' ') + cell;
  return text + "\n";
}

/// A number that JSON knows.
inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}
inline std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

}  // namespace tutti::comm::detail
