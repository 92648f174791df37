// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <tutti/core/function_ref.hpp>

#include "support/catch.hpp"

#include <string>
#include <type_traits>
#include <utility>

using tutti::FunctionRef;

namespace {

int twice(FunctionRef<int(int)> f) { return f(f(1)); }
std::string made(FunctionRef<std::string()> make) { return make(); }

}  // namespace

TEST_CASE("a FunctionRef calls what it refers to") {
  int calls = 0;
  CHECK(twice([&](int x) {
          ++calls;
          return x + 10;
        }) == 21);
  CHECK(calls == 2);
  auto const constant = [](int x) { return 3 * x; };
  CHECK(twice(constant) == 9);
  static_assert(!std::is_constructible_v<FunctionRef<int(int)>, std::string>);
}

TEST_CASE("what a FunctionRef refers to may move out of what it holds") {
  std::string text = "a text that is too long to lie in the string object itself";
  auto const* const memory = text.data();
  std::string const taken = made([&]() -> std::string { return std::move(text); });
  CHECK(taken.data() == memory);
}
