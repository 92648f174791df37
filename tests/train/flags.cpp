// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/sampling_flags.hpp>
#include "support/catch.hpp"

#include <tutti/train/flags.hpp>
#include <tutti/train/sampling_flags.hpp>

#include <cstdint>

using namespace tutti;
using namespace tutti::train;

TEST_CASE("what a variable holds exactly is a number, and everything else is refused with the text") {
  for (char const* text : {"0", "-3", "+7", "9223372036854775807", "-9223372036854775808"}) {
    INFO(text);
    CHECK(number_problem<std::int64_t>(text).empty());
  }
  for (char const* text : {"9223372036854775808", "99999999999999999999", "-9223372036854775809"}) {
    INFO(text);
    CHECK(test::contains(number_problem<std::int64_t>(text), text));
    CHECK(test::contains(number_problem<std::int64_t>(text), "9223372036854775807"));
  }
  for (char const* text : {"", "1e3", "three", "3 ", " 3", "3.0", "0x10", "+-3", "--3", "true"}) {
    INFO(text);
    CHECK(test::contains(number_problem<std::int64_t>(text), "not a whole number"));
  }
  CHECK(number_problem<std::uint64_t>("18446744073709551615").empty());
  CHECK(test::contains(number_problem<std::uint64_t>("-1"), "'-1' is not between 0 and 18446744073709551615"));
  CHECK(!number_problem<int>("2147483648").empty());
}

TEST_CASE("numbers with a fraction or an exponent") {
  for (char const* text : {"1e-3", "0.5", "3", "-2.5E+4", "+.5", "nan", "inf"}) {
    INFO(text);
    CHECK(number_problem<double>(text).empty());
  }
  for (char const* text : {"", "x", "1e", "1.5.2", "1e-3 "}) {
    INFO(text);
    CHECK(test::contains(number_problem<double>(text), "not a number"));
  }
  CHECK(test::contains(number_problem<double>("1e999"), "beyond what a double can hold"));
}

TEST_CASE("an option refuses with its own name, and takes the value as it is") {
  std::uint64_t seed = 0;
  auto const parse = [&](std::string const& word) {
    CLI::App app;
    add_number(app, "--seed", seed, "");
    std::vector<std::string> words{word};
    try {
      app.parse(words);
    } catch (CLI::ParseError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(parse("--seed=18446744073709551615").empty());
  CHECK(seed == 18446744073709551615u);
  CHECK(test::contains(parse("--seed=99999999999999999999"), "--seed"));
  CHECK(test::contains(parse("--seed=99999999999999999999"), "99999999999999999999"));
}

TEST_CASE("a number outside its range is refused with flag, value and range, NaN and text as well") {
  double part = 0.5;
  auto const parse = [&](std::string const& value) {
    CLI::App app("", "program");
    add_number(app, "--part", part, "")->check(must_be<double>("above 0 and at most 1", [](double p) {
      return p > 0 && p <= 1;
    }));
    try {
      app.parse(std::vector<std::string>{"--part=" + value});
    } catch (CLI::ParseError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (char const* value : {"1", "+0.25", "1e-3"}) CHECK(parse(value).empty());
  CHECK(part == 1e-3);
  for (char const* value : {"0", "-0.5", "1.5", "nan", "inf"})
    CHECK(parse(value) == "--part: " + std::string(value) + " must be above 0 and at most 1");
  CHECK(parse("half") == "--part: 'half' is not a number");
}

TEST_CASE("a program goes on with what it can read, the last of a repeated option, and leaves with 2 or 0 otherwise") {
  std::int64_t count = 0;
  auto const leave = [&](std::vector<char const*> words) {
    words.insert(words.begin(), "program");
    CLI::App app("", "program");
    add_number(app, "--count", count, "");
    return parse_flags(app, static_cast<int>(words.size()), words.data());
  };
  CHECK(!leave({"--count", "3", "--count=4"}));
  CHECK(count == 4);
  CHECK(leave({"--count", "x"}) == 2);
  CHECK(leave({"--other"}) == 2);
  CHECK(leave({"--help"}) == 0);
}

TEST_CASE("the sampler's settings are flags, with dashes, of the same range in every program") {
  CLI::App app{"", "program"};
  infer::SamplerOptions options;
  add_sampling_flags(app, options, "help");
  char const* const words[] = {"program", "--top-k", "5", "--seed", "7", "--dry-multiplier", "0.5", "--mirostat", "2"};
  CHECK(parse_flags(app, 9, words) == std::nullopt);
  CHECK(options.top_k == 5);
  CHECK(options.seed == 7);
  CHECK(options.dry_multiplier == 0.5);
  CHECK(options.mirostat.text() == "2");
  char const* const wrong[] = {"program", "--top-p", "7"};
  CHECK(parse_flags(app, 3, wrong) == 2);
}
