// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A simulation as a picture: a row for every device and link, as text and as SVG.

#include <tutti/plan/simulation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::plan {

namespace detail {
constexpr std::array<char, 6> timeline_letters{'F', 'B', 'H', 'U', '.', '='};
constexpr std::array<std::string_view, 6> timeline_words{"forward", "backward", "head and loss", "update", "wait",
                                                         "transfer"};
constexpr std::array<std::string_view, 6> timeline_colours{"#4e79a7", "#59a14f", "#b07aa1", "#f28e2b", "#ffffff",
                                                           "#e15759"};

struct Timeline {
  double end = 0;
  std::vector<bool> used;
  std::vector<Simulation::Span> spans;

  explicit Timeline(Simulation const& simulation)
      : used(simulation.resources().size(), false), spans(simulation.spans()) {
    for (Simulation::Span const& span : spans) {
      end = std::max(end, span.end);
      used[static_cast<std::size_t>(span.resource)] = true;
    }
  }
};
}  // namespace detail

/// `columns` wide: in each the letter of what a device or link does most of that time, a dot where it waits.
inline std::string timeline_text(Simulation const& simulation, int columns = 100) {
  detail::Timeline const line(simulation);
  std::string out;
  std::size_t width = 0;
  for (std::string const& name : simulation.resources()) width = std::max(width, name.size());
  auto const count = static_cast<std::size_t>(columns);
  for (std::size_t r = 0; r < line.used.size(); ++r) {
    if (!line.used[r]) continue;
    std::vector<std::array<double, 6>> cells(count);
    for (Simulation::Span const& span : line.spans) {
      if (static_cast<std::size_t>(span.resource) != r || line.end <= 0) continue;
      double const begin = span.begin / line.end * columns, end = span.end / line.end * columns;
      for (auto c = static_cast<std::size_t>(begin); c < count && static_cast<double>(c) < end; ++c)
        cells[c][static_cast<std::size_t>(span.kind)] +=
            std::min(end, static_cast<double>(c) + 1) - std::max(begin, static_cast<double>(c));
    }
    std::string row(count, '.');
    for (std::size_t c = 0; c < count; ++c) {
      double best = 1;  // what is left is waiting
      for (double const part : cells[c]) best -= part;
      for (std::size_t k = 0; k < 6; ++k)
        if (cells[c][k] > best) best = cells[c][k], row[c] = detail::timeline_letters[k];
    }
    out += fmt::format("{:<{}} {}\n", simulation.resources()[r], width, row);
  }
  return out + fmt::format("{:<{}} {:.2f} ms; F forward, H head and loss, B backward, U update, = transfer, . waits\n",
                           "", width, 1e3 * line.end);
}

/// A document of its own, 1000 wide.
inline std::string timeline_svg(Simulation const& simulation, std::string_view title) {
  detail::Timeline const line(simulation);
  constexpr double left = 140, width = 840, height = 22, top = 40;
  std::vector<double> y(line.used.size(), 0);
  double bottom = top;
  for (std::size_t r = 0; r < line.used.size(); ++r)
    if (line.used[r]) y[r] = bottom, bottom += height + 4;
  auto const escaped = [](std::string_view text) {
    std::string out;
    for (char const c : text)
      out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return out;
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"{0:.0f}\" viewBox=\"0 0 1000 {0:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"1000\" height=\"{0:.0f}\" fill=\"#fff\"/>\n"
      "<text x=\"10\" y=\"22\" font-size=\"15\">{1}</text>\n",
      bottom + 46, escaped(title));
  for (std::size_t r = 0; r < line.used.size(); ++r)
    if (line.used[r])
      out += fmt::format("<text x=\"10\" y=\"{:.1f}\">{}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" "
                         "fill=\"#f2f2f2\"/>\n",
                         y[r] + 15, escaped(simulation.resources()[r]), left, y[r], width, height);
  // Neighbours of a kind are one box: thousands of steps would be as many.
  struct Box {
    double begin = 0, end = -1;
    Simulation::Kind kind{};
  };
  std::vector<Box> open(line.used.size());
  auto const draw = [&](std::size_t r) {
    Box const& box = open[r];
    if (box.end < 0 || line.end <= 0) return;
    out += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>\n",
                       left + box.begin / line.end * width, y[r],
                       std::max(0.2, (box.end - box.begin) / line.end * width - (width > 0 ? 0.3 : 0)), height,
                       detail::timeline_colours[static_cast<std::size_t>(box.kind)]);
  };
  std::vector<Simulation::Span> spans = line.spans;
  std::stable_sort(spans.begin(), spans.end(), [](auto const& a, auto const& b) { return a.begin < b.begin; });
  double const gap = line.end / width / 2;
  for (Simulation::Span const& span : spans) {
    auto const r = static_cast<std::size_t>(span.resource);
    if (open[r].end >= 0 && open[r].kind == span.kind && span.begin - open[r].end <= gap &&
        span.end - open[r].begin < line.end / 40) {
      open[r].end = span.end;
      continue;
    }
    draw(r);
    open[r] = {span.begin, span.end, span.kind};
  }
  for (std::size_t r = 0; r < open.size(); ++r) draw(r);
  double x = left;
  for (std::size_t k = 0; k < 6; ++k) {
    if (detail::timeline_letters[k] == '.') continue;
    out += fmt::format("<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"12\" height=\"12\" fill=\"{2}\"/><text x=\"{3:.0f}\" "
                       "y=\"{4:.0f}\">{5}</text>\n",
                       x, bottom + 12, detail::timeline_colours[k], x + 18, bottom + 22, detail::timeline_words[k]);
    x += 120;
  }
  return out + fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{:.2f} ms</text>\n</svg>\n",
                           left + width, bottom + 22, 1e3 * line.end);
}

}  // namespace tutti::plan
