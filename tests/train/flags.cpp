// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/flags.hpp>

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
  CHECK(!number_problem<std::uint64_t>("-1").empty());
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
