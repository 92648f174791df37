// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A Picture as lines of a text screen of any size.

#include <tutti/train/console.hpp>
#include <tutti/watch/chart.hpp>
#include <tutti/watch/picture.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::watch {

struct Screen {
  std::size_t rows = 24, columns = 80;
  bool unicode = true;
  std::size_t chosen = SIZE_MAX;  ///< number of the worker that a key would act on
  std::string notice{};             ///< of the view, in the place of the keys
  std::string keys{};
  double now = 0;                 ///< seconds since 1970; 0: not known
};

namespace detail {

inline void add(std::string& to, std::string const& what) { to += (to.empty() ? "" : "  ") + what; }

/// "training", and what is unusual about it.
inline std::string state_of(Picture const& p, double now) {
  if (p.ended) return "ended: " + p.reason;
  std::string said = p.phase.empty() ? "begins" : p.phase;
  if (p.paused && p.phase != "paused") said += ", to pause";
  if (p.stopping) said = "stopping";
  if (now > 0 && p.time > 0 && now - p.time > 10) said += ", no sign for " + train::human_time(now - p.time);
  return said;
}
inline std::string numbers_of(Picture const& p) {
  std::string text;
  if (p.loss >= 0) add(text, fmt::format("loss {:.4f}", p.loss));
  if (p.validation_loss >= 0) add(text, fmt::format("validation {:.4f}", p.validation_loss));
  if (p.bits_per_byte > 0) add(text, fmt::format("{:.4f} bits per byte", p.bits_per_byte));
  if (p.grad_norm >= 0) add(text, fmt::format("norm {:.3f}", p.grad_norm));
  if (p.learning_rate >= 0) add(text, fmt::format("lr {:.2e}", p.learning_rate));
  return text;
}
inline std::string speed_of(Picture const& p) {
  std::string text;
  if (p.tokens_per_second >= 0)
    add(text, train::with_commas(static_cast<std::int64_t>(p.tokens_per_second + 0.5)) + " tok/s");
  if (p.ms >= 0)
    add(text, p.federated ? fmt::format("{:.1f} s a round", p.ms * 1e-3) : fmt::format("{:.1f} ms a step", p.ms));
  if (p.utilisation > 0) add(text, fmt::format("mfu {:.1f} %", 100 * p.utilisation));
  if (p.waits_ms >= 0) add(text, fmt::format("waits {:.1f} ms", p.waits_ms));
  if (p.trained_seconds > 0) add(text, train::human_time(p.trained_seconds) + " trained");
  if (p.seconds_left >= 0 && !p.ended) add(text, train::human_time(p.seconds_left) + " left");
  return text;
}
inline std::string machine_of(Picture const& p) {
  std::string text;
  if (p.cpu >= 0) add(text, fmt::format("{:.1f} processors busy", p.cpu));
  if (p.memory >= 0) add(text, train::human_bytes(p.memory) + " in memory");
  if (p.available > 0) add(text, train::human_bytes(p.available) + " available");
  if (p.sent >= 0) add(text, train::human_bytes(p.sent) + " out");
  if (p.received >= 0) add(text, train::human_bytes(p.received) + " in");
  return text;
}
inline std::string algorithm_of(Picture const& p) {
  std::string text;
  if (p.inner_steps > 0)
    add(text, fmt::format("inner step {} of {}, {} outer steps done", p.inner_step, p.inner_steps, p.outer_step));
  if (p.working >= 0)
    add(text,
        fmt::format("round {}: {} delivered, {} at work, quorum {}", p.step + 1, p.delivered, p.working, p.quorum));
  return text;
}

/// A column of the table of workers: left out where no worker has anything in it.
struct Column {
  char const* title;
  bool right;
  std::function<std::string(Worker const&)> text;
};
inline std::vector<Column> const& worker_columns() {
  auto const bytes = [](double value) { return value < 0 ? std::string() : train::human_bytes(value); };
  static std::vector<Column> const columns{
      {"name", false, [](Worker const& w) { return w.name; }},
      {"state", false, [](Worker const& w) { return w.state; }},
      {"step", true,
       [](Worker const& w) {
         return w.step < 0 ? std::string()
                           : std::to_string(w.step) + (w.steps > 0 ? "/" + std::to_string(w.steps) : "");
       }},
      {"tok/s", true,
       [](Worker const& w) {
         return w.tokens_per_second < 0 ? std::string() : fmt::format("{:.0f}", w.tokens_per_second);
       }},
      {"out", true, [bytes](Worker const& w) { return bytes(w.sent); }},
      {"in", true, [bytes](Worker const& w) { return bytes(w.received); }},
      {"waits", true,
       [](Worker const& w) { return w.waits_ms < 0 ? std::string() : fmt::format("{:.1f} ms", w.waits_ms); }},
      {"cpu", true, [](Worker const& w) { return w.cpu < 0 ? std::string() : fmt::format("{:.1f}", w.cpu); }},
      {"memory", true, [bytes](Worker const& w) { return bytes(w.memory); }},
      {"where", false, [](Worker const& w) { return w.link; }},
      {"device", false, [](Worker const& w) { return w.device; }},
      {"note", false, [](Worker const& w) { return w.note; }}};
  return columns;
}
inline std::vector<TextLine> table_of(Picture const& p, std::size_t most, Screen const& screen) {
  std::vector<TextLine> lines;
  if (p.workers.empty() || most < 2) return lines;
  // Where not all fit, the chosen one is among those that are shown.
  std::size_t const shown = std::min(p.workers.size(), most - 1);
  std::size_t const first =
      screen.chosen < p.workers.size() && screen.chosen >= shown ? screen.chosen - shown + 1 : 0;
  std::vector<std::string> rows(shown + 1);
  for (Column const& column : worker_columns()) {
    std::vector<std::string> texts{column.title};
    std::size_t wide = width_of(column.title);
    bool any = false;
    for (std::size_t i = first; i < first + shown; ++i) {
      texts.push_back(column.text(p.workers[i]));
      any = any || !texts.back().empty();
      wide = std::max(wide, width_of(texts.back()));
    }
    if (!any) continue;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::string const padding(wide - width_of(texts[i]), ' ');
      rows[i] += (column.right ? padding + texts[i] : texts[i] + padding) + "  ";
    }
  }
  std::size_t const hidden = p.workers.size() - shown;
  if (hidden > 0) rows[0] += fmt::format("({} more)", hidden);
  for (std::size_t i = 0; i < rows.size(); ++i)
    lines.push_back({{rows[i], i == 0 ? Style::dim : first + i - 1 == screen.chosen ? Style::chosen : Style::plain}});
  return lines;
}
/// "[#####.....]"
inline std::string bar_of(double done, std::size_t columns, bool unicode) {
  auto const full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(columns));
  std::string text;
  for (std::size_t i = 0; i < columns; ++i) text += unicode ? (i < full ? "█" : "░") : (i < full ? "#" : ".");
  return text;
}

}  // namespace detail

/// As many lines as the screen has rows, none longer than its columns. Small screens lose the table, then the chart.
inline std::vector<TextLine> lay_out(Picture const& p, Screen const& screen) {
  using detail::add;
  std::vector<TextLine> lines;
  std::string const state = detail::state_of(p, screen.now);
  bool const troubled = p.ended ? p.reason != "done" : state.find("no sign") != state.npos || p.stopping || p.paused;
  std::string what = p.federated ? "outer step " + std::to_string(p.step)
                                 : "step " + std::to_string(p.step) + " of " + std::to_string(p.steps);
  if (p.done >= 0) what += fmt::format(", {:.1f} %", 100 * p.done);
  lines.push_back({{"tutti ", Style::bold},
                   {p.name + "  ", Style::plain},
                   {state, troubled ? Style::warning : Style::good},
                   {"  " + what, Style::bold}});
  if (screen.columns >= 20)
    lines.push_back({{detail::bar_of(p.done, screen.columns, screen.unicode), Style::train}});
  for (std::string const& text : {detail::numbers_of(p), detail::speed_of(p), detail::algorithm_of(p),
                                  detail::machine_of(p)})
    if (!text.empty()) lines.push_back({{text, Style::plain}});
  if (screen.rows >= 16) lines.push_back({{p.model + "; " + p.place, Style::dim}});

  // What is left is for the chart, the table and the events, and the last line for the keys.
  std::size_t left = screen.rows > lines.size() + 1 ? screen.rows - lines.size() - 1 : 0;
  std::size_t const wanted = p.workers.empty() ? 0 : p.workers.size() + 2;
  std::size_t const table_rows = left < 12 ? 0 : std::min(wanted, left / 3);
  std::size_t const event_rows = left < 6 ? 0 : std::clamp<std::size_t>(left / 4, 2, 8);
  std::size_t const chart_rows = left - table_rows - event_rows;
  if (chart_rows >= 5 && screen.columns >= 24) {
    lines.push_back({{"loss  ", Style::bold}, {"training", Style::train}, {"  ", Style::plain},
                     {"validation", Style::validation}});
    for (TextLine& line : Chart(chart_rows - 1, screen.columns, screen.unicode).draw(p.losses, p.validations))
      lines.push_back(std::move(line));
  }
  if (table_rows >= 3) {
    lines.push_back({});
    for (TextLine& line : detail::table_of(p, table_rows - 1, screen)) lines.push_back(std::move(line));
  }
  if (event_rows > 0) {
    std::size_t const room = std::min(screen.rows - 1 - std::min(screen.rows - 1, lines.size()), event_rows + 20);
    if (room > 1) {
      lines.push_back({{"events", Style::bold}});
      std::size_t const shown = std::min(p.events.size(), room - 1);
      for (std::size_t i = p.events.size() - shown; i < p.events.size(); ++i) {
        bool const bad = p.events[i].starts_with("WARNING") || p.events[i].find("error") != std::string::npos;
        lines.push_back({{p.events[i], bad ? Style::warning : Style::plain}});
      }
    }
  }
  lines.resize(std::max<std::size_t>(screen.rows, 1) - 1);
  lines.push_back(screen.notice.empty() ? TextLine{{screen.keys, Style::dim}}
                                        : TextLine{{screen.notice, Style::warning}});
  for (TextLine& line : lines) {
    std::size_t room = screen.columns;
    for (Span& span : line) {
      std::size_t const wide = std::min(room, width_of(span.text));
      span.text = fitted(span.text, wide);
      room -= wide;
    }
  }
  return lines;
}

/// For a program that is no terminal: one line of numbers, as the trainer's own.
inline std::string line_of(Picture const& p) {
  std::string text = p.federated ? "outer step " + std::to_string(p.step)
                                 : fmt::format("step {}/{}", p.step, p.steps);
  if (p.done >= 0 && p.federated) text += fmt::format(" ({:.1f} %)", 100 * p.done);
  for (std::string const& more : {detail::numbers_of(p), detail::speed_of(p)})
    if (!more.empty()) detail::add(text, more);
  return text;
}

}  // namespace tutti::watch
