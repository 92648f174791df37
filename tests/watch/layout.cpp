// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/watch/layout.hpp> <tutti/watch/chart.hpp>
#include "support/catch.hpp"

#include <tutti/watch/layout.hpp>

#include <cmath>

using namespace tutti;
using namespace tutti::watch;

namespace {

std::string text_of(TextLine const& line) {
  std::string text;
  for (Span const& span : line) text += span.text;
  return text;
}
std::string text_of(std::vector<TextLine> const& lines) {
  std::string text;
  for (TextLine const& line : lines) text += text_of(line) + "\n";
  return text;
}

Picture sample() {
  Picture p;
  p.name = "runs/x";
  p.phase = "training";
  p.step = 40, p.steps = 100, p.done = 0.4, p.seconds_left = 75;
  p.loss = 2.5, p.validation_loss = 2.75, p.tokens_per_second = 12345, p.ms = 10.5;
  p.model = "gpt2", p.place = "2 ranks";
  for (int i = 1; i <= 40; ++i) p.losses.push_back({i, 5.0 - i * 0.06});
  p.validations = {{0, 5.0}, {20, 4.0}, {40, 2.75}};
  for (int i = 0; i < 2; ++i) {
    Worker w;
    w.name = "rank " + std::to_string(i);
    w.memory = 1.5e9;
    w.device = "cpu";
    p.workers.push_back(w);
  }
  p.events = {"begins", "step 20: checkpoint x"};
  return p;
}

}  // namespace

TEST_CASE("a screen of any size is filled exactly, and no line is longer") {
  Picture const full = sample();
  for (std::size_t rows : {1, 2, 3, 5, 8, 12, 16, 24, 50, 200})
    for (std::size_t columns : {1, 2, 10, 19, 24, 40, 80, 300})
      for (bool unicode : {true, false})
        for (Picture const& p : {full, Picture()}) {
          auto const lines = lay_out(p, {.rows = rows, .columns = columns, .unicode = unicode, .keys = "q quit"});
          INFO(rows << " x " << columns);
          REQUIRE(lines.size() == rows);
          bool fits = true, ascii = true;
          for (TextLine const& line : lines) {
            fits = fits && width_of(text_of(line)) <= columns;
            for (char byte : text_of(line)) ascii = ascii && static_cast<unsigned char>(byte) < 128;
          }
          CHECK(fits);
          CHECK((unicode || ascii));
        }
}

TEST_CASE("a usual screen shows all of it") {
  std::string const text = text_of(lay_out(sample(), {.rows = 30, .columns = 100, .keys = "q quit"}));
  for (char const* part : {"tutti runs/x  training  step 40 of 100, 40.0 %", "loss 2.5000", "validation 2.7500",
                           "12,345 tok/s", "10.5 ms a step", "1:15 left", "gpt2; 2 ranks", "rank 0", "rank 1", "1.5 GB",
                           "device", "step 20: checkpoint x", "q quit"}) {
    INFO(part << " in\n" << text);
    CHECK(test::contains(text, part));
  }
  CHECK(!test::contains(text, "waits"));  // a column that nobody fills
}

TEST_CASE("what is unusual is said") {
  Picture p = sample();
  p.paused = true;
  p.time = 1000;
  CHECK(test::contains(text_of(lay_out(p, {.now = 1005})), "training, to pause"));
  CHECK(test::contains(text_of(lay_out(p, {.now = 1100})), "no sign for 1:40"));
  p.ended = true, p.reason = "diverged";
  auto const lines = lay_out(p, {.now = 1100});
  CHECK(test::contains(text_of(lines), "ended: diverged"));
  CHECK(lines[0].at(2).style == Style::warning);
  CHECK(test::contains(text_of(lay_out(p, {.notice = "something"})), "something"));
}

TEST_CASE("of many workers the chosen one is shown, and how many are not") {
  Picture p = sample();
  p.federated = true;
  p.workers.clear();
  for (int i = 0; i < 50; ++i) {
    Worker w;
    w.name = fmt::format("w{:02}", i);
    p.workers.push_back(w);
  }
  auto const lines = lay_out(p, {.rows = 30, .columns = 80, .chosen = 40});
  std::string const text = text_of(lines);
  INFO(text);
  CHECK(test::contains(text, "w40"));
  CHECK(!test::contains(text, "w41"));
  CHECK(test::contains(text, " more)"));
  bool chosen = false;
  for (TextLine const& line : lines)
    chosen = chosen || (!line.empty() && line[0].style == Style::chosen && line[0].text.starts_with("w40"));
  CHECK(chosen);
}

TEST_CASE("a falling curve falls: its dots are where its numbers are") {
  std::vector<train::Point> falling;
  for (int i = 0; i <= 100; ++i) falling.push_back({i, 10.0 - 0.1 * i});
  auto const lines = Chart(11, 50, false).draw(falling, {{0, 0.0}, {100, 10.0}});
  REQUIRE(lines.size() == 11);
  std::vector<std::string> rows;
  for (std::size_t row = 0; row < 10; ++row) rows.push_back(text_of(lines[row]).substr(10));
  CHECK(rows[0].front() == '*');
  CHECK(rows[9].back() == '*');
  CHECK(rows[9].front() == 'o');
  CHECK(rows[0].back() == 'o');
  CHECK(test::contains(text_of(lines[0]), "10.000 |"));
  CHECK(test::contains(text_of(lines[9]), " 0.000 |"));
  CHECK(test::contains(text_of(lines[10]), "0                                     100"));
  // Braille: the first dot is upper left, U+2801 and more.
  std::string const braille = text_of(Chart(11, 50, true).draw(falling, {})[0]);
  CHECK(test::contains(braille, "│\xe2\xa0"));
  CHECK(test::contains(text_of(Chart(5, 40, true).draw({}, {})), "no loss yet"));
  CHECK(Chart(5, 40, true).draw({{3, 1.0}}, {}).size() == 5);  // one point
}

TEST_CASE("characters are counted, not bytes") {
  CHECK(width_of("a│b") == 3);
  CHECK(fitted("a│b", 2) == "a│");
  CHECK(fitted("a│", 4) == "a│  ");
}

TEST_CASE("plain lines are as the trainer's") {
  CHECK(line_of(sample()) == "step 40/100  loss 2.5000  validation 2.7500  12,345 tok/s  10.5 ms a step  1:15 left");
}
