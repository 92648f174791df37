// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Lines of a text screen, and curves drawn with them.

#include <tutti/train/registry.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::watch {

enum class Style : unsigned char { plain, dim, bold, good, warning, train, validation, chosen };
struct Span {
  std::string text;  ///< UTF-8, or ASCII where the screen has no more
  Style style = Style::plain;
};
using TextLine = std::vector<Span>;

/// Places on the screen that a text takes: one for each character, as all texts here are made of such.
inline std::size_t width_of(std::string const& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}
/// The first `width` characters, with as many blanks as are missing.
inline std::string fitted(std::string const& text, std::size_t width) {
  std::size_t taken = 0, at = 0;
  for (; at < text.size(); ++at) {
    if ((text[at] & 0xc0) == 0x80) continue;
    if (taken++ == width) break;
  }
  std::string made = text.substr(0, at);
  return made + std::string(width - std::min(width, width_of(made)), ' ');
}

/// Two curves over steps: each character has two dots across and four down where the screen has Unicode's braille, else
/// one letter. Where both are, the second one shows. Requires rows of 3 and columns of 20 at least.
class Chart {
 public:
  Chart(std::size_t rows, std::size_t columns, bool unicode)
      : rows_(rows - 1), columns_(columns - margin), unicode_(unicode) {}

  std::vector<TextLine> draw(std::vector<train::Point> const& first, std::vector<train::Point> const& second) const {
    double low = INFINITY, high = -INFINITY;
    std::int64_t begin = INT64_MAX, end = INT64_MIN;
    for (auto const* points : {&first, &second})
      for (auto const& [step, value] : *points) {
        low = std::min(low, value), high = std::max(high, value);
        begin = std::min(begin, step), end = std::max(end, step);
      }
    std::vector<TextLine> lines;
    if (begin > end) {
      for (std::size_t row = 0; row <= rows_; ++row)
        lines.push_back({{row == rows_ / 2 ? "          no loss yet" : "", Style::dim}});
      return lines;
    }
    if (high - low < 1e-9) low -= 0.5, high += 0.5;
    std::vector<unsigned char> dots(rows_ * columns_, 0), owner(rows_ * columns_, 0);
    plot(first, begin, end, low, high, 1, dots, owner);
    plot(second, begin, end, low, high, 2, dots, owner);
    for (std::size_t row = 0; row < rows_; ++row) {
      double const at =
          high - (high - low) * static_cast<double>(row) / static_cast<double>(std::max<std::size_t>(rows_ - 1, 1));
      bool const labelled = row == 0 || row + 1 == rows_ || row == rows_ / 2;
      TextLine line{{labelled ? fmt::format("{:>8.3f} ", at) : std::string(margin - 1, ' '), Style::dim},
                    {unicode_ ? "│" : "|", Style::dim}};
      for (std::size_t column = 0; column < columns_; ++column) {
        std::size_t const cell = row * columns_ + column;
        Style const style = owner[cell] == 2 ? Style::validation : owner[cell] == 1 ? Style::train : Style::plain;
        if (line.size() < 3 || line.back().style != style) line.push_back({"", style});
        line.back().text += dots[cell] == 0 ? " " : unicode_ ? braille(dots[cell]) : owner[cell] == 2 ? "o" : "*";
      }
      lines.push_back(std::move(line));
    }
    std::string const from = std::to_string(begin), to = std::to_string(end);
    std::size_t const space = columns_ + 1 > from.size() + to.size() ? columns_ + 1 - from.size() - to.size() : 1;
    lines.push_back({{std::string(margin - 1, ' ') + from + std::string(space, ' ') + to, Style::dim}});
    return lines;
  }

 private:
  static constexpr std::size_t margin = 10;  // of the numbers and the axis

  /// U+2800 and its dots.
  static std::string braille(unsigned char dots) {
    return {'\xe2', static_cast<char>(0xa0 + (dots >> 6)), static_cast<char>(0x80 + (dots & 0x3f))};
  }
  void plot(std::vector<train::Point> const& points, std::int64_t begin, std::int64_t end, double low, double high,
            unsigned char who, std::vector<unsigned char>& dots, std::vector<unsigned char>& owner) const {
    std::size_t const across = unicode_ ? 2 : 1, down = unicode_ ? 4 : 1;
    auto const wide = static_cast<double>(columns_ * across - 1), tall = static_cast<double>(rows_ * down - 1);
    auto const steps = static_cast<double>(std::max<std::int64_t>(end - begin, 1));
    long before_x = -1, before_y = 0;
    for (auto const& [step, value] : points) {
      long const x = std::lround(static_cast<double>(step - begin) / steps * wide);
      long const y = std::lround((high - value) / (high - low) * tall);
      // A line from the point before.
      long const parts = before_x < 0 ? 1 : std::max({std::labs(x - before_x), std::labs(y - before_y), 1L});
      for (long part = before_x < 0 ? parts : 1; part <= parts; ++part) {
        long const px = before_x < 0 ? x : before_x + (x - before_x) * part / parts;
        long const py = before_x < 0 ? y : before_y + (y - before_y) * part / parts;
        mark(static_cast<std::size_t>(px), static_cast<std::size_t>(py), across, down, who, dots, owner);
      }
      before_x = x, before_y = y;
    }
  }
  void mark(std::size_t x, std::size_t y, std::size_t across, std::size_t down, unsigned char who,
            std::vector<unsigned char>& dots, std::vector<unsigned char>& owner) const {
    std::size_t const cell = y / down * columns_ + x / across;
    if (owner[cell] != 0 && owner[cell] != who) dots[cell] = 0;
    owner[cell] = who;
    // In the order of Unicode: dots 1 to 3 down on the left, 4 to 6 on the right, then 7 and 8 below.
    constexpr unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    dots[cell] = static_cast<unsigned char>(dots[cell] | bits[y % down][x % across]);
  }

  std::size_t rows_, columns_;  // of the curve
  bool unicode_;
};

}  // namespace tutti::watch
