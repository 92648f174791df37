// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a run says to people: a table at the start, a line a step, a progress bar where a terminal can show one.
/// Rank 0 speaks on the standard output, the others into a file each.

#include <tutti/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tutti::train {

/// Average that forgets: weight 0.05 for what is new, corrected for its start, as llm.c smooths its tokens per second.
class Smoothed {
 public:
  void add(double value) noexcept {
    sum_ = 0.95 * sum_ + 0.05 * value;
    weight_ = 0.95 * weight_ + 0.05;
  }
  bool empty() const noexcept { return weight_ == 0; }
  double value() const noexcept { return weight_ == 0 ? 0 : sum_ / weight_; }

 private:
  double sum_ = 0, weight_ = 0;
};

/// "1,234,567"
inline std::string with_commas(std::int64_t value) {
  std::string const digits = std::to_string(std::abs(value));
  std::string text = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}
/// "1.5 GB"
inline std::string human_bytes(double bytes) {
  char const* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}
/// "1:02:03" or "2:03"
inline std::string human_time(double seconds) {
  auto const s = static_cast<std::int64_t>(std::min(seconds, 1e9) + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

/// Names and values in two columns.
inline std::vector<std::string> table_lines(std::vector<std::pair<std::string, std::string>> const& rows) {
  std::size_t widest = 0;
  for (auto const& row : rows) widest = std::max(widest, row.first.size());
  std::vector<std::string> lines;
  for (auto const& [name, value] : rows) lines.push_back(fmt::format("{:<{}}  {}", name, widest, value));
  return lines;
}

/// What is known after a step.
struct StepReport {
  std::int64_t step = 0, steps = 0;  ///< counted from 1
  double loss = 0, grad_norm = 0, learning_rate = 0, ms = 0, exposed_comm_ms = 0, tokens_per_second = 0;
  double utilisation = 0;            ///< of the measured peak, 0 when it is not known
  double seconds_left = 0;
};

class Console {
 public:
  /// Silent.
  Console() = default;
  /// To a stream that outlives the console; a bar when it is a terminal. TUTTI_TERMINAL=1 says that it ends in one:
  /// what a launcher gives its processes is a pipe.
  explicit Console(std::FILE* out) : out_(out), terminal_(::isatty(::fileno(out)) != 0 || announced_terminal()) {}
  /// Into a file of its own. Errors: io.
  explicit Console(std::string const& path) : out_(std::fopen(path.c_str(), "a")), owned_(true) {
    if (out_ == nullptr)
      throw Error(ErrorKind::io, "Console", path + " cannot be written. Choose another --out")
          .with_native(std::strerror(errno));
  }
  Console(Console&& other) noexcept { swap(other); }
  Console& operator=(Console&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Console() {
    clear_bar();
    if (owned_ && out_ != nullptr) std::fclose(out_);
  }

  bool terminal() const noexcept { return terminal_; }

  /// Lines that stay.
  void line(std::string const& text) {
    if (out_ == nullptr) return;
    clear_bar();
    std::fputs((text + "\n").c_str(), out_);
    std::fflush(out_);
  }
  void table(std::vector<std::pair<std::string, std::string>> const& rows) {
    for (std::string const& text : table_lines(rows)) line(text);
  }
  /// A step: always when few, else about a hundred in all; between them a terminal sees the bar move.
  void step(StepReport const& r) {
    if (out_ == nullptr) return;
    bool const shown = r.step <= 10 || r.step == r.steps || r.step % std::max<std::int64_t>(1, r.steps / 100) == 0;
    std::string const text = describe(r);
    if (shown && !terminal_) line(text);
    if (!terminal_) return;
    int const width = 24;
    auto const done = static_cast<int>(r.step * width / std::max<std::int64_t>(1, r.steps));
    std::fprintf(out_, "\r\033[K[%s%s] %s", std::string(static_cast<std::size_t>(done), '#').c_str(),
                 std::string(static_cast<std::size_t>(width - done), '.').c_str(), text.c_str());
    std::fflush(out_);
    bar_ = true;
    if (r.step == r.steps) {
      std::fputs("\n", out_);
      bar_ = false;
    }
  }

  static std::string describe(StepReport const& r) {
    std::string text = fmt::format("step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.1f} ms", r.step,
                                   std::to_string(r.steps).size(), r.steps, r.loss, r.grad_norm, r.learning_rate, r.ms);
    text += r.utilisation > 0 ? fmt::format("  mfu {:.1f} %", 100 * r.utilisation) : "  mfu n/a";
    text += fmt::format("  {:.0f} tok/s  waits {:.1f} ms", r.tokens_per_second, r.exposed_comm_ms);
    if (r.seconds_left > 0) text += "  " + human_time(r.seconds_left) + " left";
    return text;
  }

 private:
  static bool announced_terminal() {
    char const* const said = std::getenv("TUTTI_TERMINAL");
    return said != nullptr && std::strcmp(said, "1") == 0;
  }
  void clear_bar() {
    if (bar_) std::fputs("\r\033[K", out_);
    bar_ = false;
  }
  void swap(Console& other) noexcept {
    std::swap(out_, other.out_);
    std::swap(owned_, other.owned_);
    std::swap(terminal_, other.terminal_);
    std::swap(bar_, other.bar_);
  }

  std::FILE* out_ = nullptr;
  bool owned_ = false, terminal_ = false, bar_ = false;
};

}  // namespace tutti::train
