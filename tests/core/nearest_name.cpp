// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/nearest_name.hpp>
#include "support/catch.hpp"

#include <tutti/core/nearest_name.hpp>

#include <string>

using namespace tutti;

TEST_CASE("The distance of two words is the number of letters that are put in, left out or changed") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("flaw", "lawn") == 2);
}
TEST_CASE("The nearest name is asked for, unless none is near") {
  auto const question = [](std::string const& wrong) {
    NearestName nearest(wrong);
    for (char const* const name : {"temperature", "top_k", "top_p", "n"}) nearest.try_name(name);
    return nearest.question();
  };
  CHECK(question("tempurature") == ". Did you mean 'temperature'?");
  CHECK(question("top_q") == ". Did you mean 'top_k'?");  // both are one letter away
  CHECK(question("temprtr") == "");
  CHECK(question("m") == ". Did you mean 'n'?");
  CHECK(question(std::string(1000, 'x')) == "");
}
