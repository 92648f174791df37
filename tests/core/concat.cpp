// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/concat.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

using tutti::concat;

TEST_CASE("concat puts texts, characters and numbers one after another") {
  std::string const name = "rank";
  char const* const verb = "sends";
  CHECK(concat(name, ' ', 3, std::string_view(" of "), std::size_t{4}, ' ', verb, " it") == "rank 3 of 4 sends it");
  CHECK(concat().empty());
  CHECK(concat("", std::string(), "").empty());
  CHECK(concat(-1, ' ', std::numeric_limits<std::uint64_t>::max()) == "-1 18446744073709551615");
}

TEST_CASE("concat writes floating-point numbers with six digits") {
  CHECK(concat(1.5, " s") == "1.5 s");
  CHECK(concat(600.0f, ' ', 0.02, ' ', 1e9, ' ', -1.0 / 3) == "600 0.02 1e+09 -0.333333");
}
