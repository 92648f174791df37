// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/corpus.hpp>

#include "support/catch.hpp"

#include <algorithm>

using namespace tutti;

namespace {
std::string joined(std::vector<std::string_view> const& documents) {
  std::string text;
  for (auto const document : documents) text += document;
  return text;
}
}  // namespace

TEST_CASE("documents begin behind blank lines, at text that is not indented") {
  using Documents = std::vector<std::string_view>;
  CHECK(data::split_documents("").empty());
  CHECK(data::split_documents("a") == Documents{"a"});
  CHECK(data::split_documents("a\nb\n") == Documents{"a\nb\n"});
  CHECK(data::split_documents("a\n\nb\n") == Documents{"a\n\n", "b\n"});
  CHECK(data::split_documents("a\n\n  b\n\n\tc\n\nd") == Documents{"a\n\n  b\n\n\tc\n\n", "d"});
  CHECK(data::split_documents("\n\n\na\n\n\n\nb") == Documents{"\n\n\na\n\n\n\n", "b"});
  CHECK(data::split_documents("a\r\n\r\nb") == Documents{"a\r\n\r\n", "b"});
  CHECK(data::split_documents("\n\n") == Documents{"\n\n"});
}

TEST_CASE("held-out and learned documents together are the text, and the fraction is kept") {
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text +=
        "entry " + std::to_string(i) + "\n  body " + std::string(static_cast<std::size_t>(i * 7 % 60), 'x') + "\n\n";
  auto const documents = data::split_documents(text);
  CHECK(documents.size() == 2000);
  CHECK(joined(documents) == text);
  for (double const fraction : {0.0, 0.01, 0.1, 0.25, 0.5}) {
    data::HeldOut const parts = data::hold_out(documents, fraction);
    CHECK(parts.train.size() + parts.validation.size() == documents.size());
    auto const held = static_cast<double>(joined(parts.validation).size()), total = static_cast<double>(text.size());
    CHECK(held / total > fraction - 0.005);
    CHECK(held / total < fraction + 0.005);
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < parts.validation.size(); ++i)
      blocks += i == 0 || parts.validation[i].data() != parts.validation[i - 1].data() + parts.validation[i - 1].size();
    CHECK(blocks == (fraction > 0 ? 10u : 0u));
    std::vector<std::string_view> all = parts.train;
    all.insert(all.end(), parts.validation.begin(), parts.validation.end());
    std::sort(all.begin(), all.end(), [](auto a, auto b) { return a.data() < b.data(); });
    CHECK(joined(all) == text);
  }
}

TEST_CASE("a text of few documents gives up its end, at a line or between characters") {
  auto const parts = [](std::string const& text, double fraction) {
    auto const held = data::hold_out(data::split_documents(text), fraction);
    return std::pair(joined(held.train), joined(held.validation));
  };
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "line " + std::to_string(i) + "\n";
  auto const [learned, held] = parts(lines, 0.1);
  CHECK(learned + held == lines);
  CHECK(held.starts_with("line "));
  CHECK(held.size() > 60);
  CHECK(held.size() < 120);
  std::string accents;
  for (int i = 0; i < 501; ++i) accents += "\xc3\xa9";
  auto const [a, b] = parts(accents, 0.1);
  CHECK(a + b == accents);
  CHECK(a.size() % 2 == 0);
  CHECK(!b.empty());
  CHECK(parts("", 0.1) == std::pair(std::string(), std::string()));
  REQUIRE_ERROR(data::hold_out({}, -0.1), ErrorKind::invalid_argument, "fraction");
  REQUIRE_ERROR(data::hold_out({}, 0.6), ErrorKind::invalid_argument, "fraction");
}
