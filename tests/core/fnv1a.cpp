// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/fnv1a.hpp>

#include "support/catch.hpp"

using namespace tutti;

TEST_CASE("letters have the published hashes") {
  static_assert(Fnv1a().value() == 0xcbf29ce484222325u);
  static_assert(Fnv1a().add("a").value() == 0xaf63dc4c8601ec8cu);
  CHECK(Fnv1a().add("foobar").value() == 0x85944171f73967e8u);
}

TEST_CASE("numbers count in their order, and as a number the hash is not negative") {
  CHECK(Fnv1a().add(1).add(2).value() != Fnv1a().add(2).add(1).value());
  CHECK(Fnv1a().add("a").number() == static_cast<std::int64_t>(0xaf63dc4c8601ec8cu >> 1));
}
