// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/block_type.hpp> <tutti/core/block_layout.hpp>
#include <tutti/core/block_layout.hpp>

#include "support/catch.hpp"

#include <string>

using namespace tutti;

TEST_CASE("a block type knows its name, its block and the bytes of a row") {
  CHECK(std::size(detail::block_facts) == 15);
  for (auto const& facts : detail::block_facts) {
    CAPTURE(std::string(facts.name));
    CHECK(find_block_type(name(facts.type)) == facts.type);
    CHECK(row_bytes(facts.type, 0) == 0);
    CHECK(row_bytes(facts.type, 3 * facts.elements) == 3 * facts.bytes);
    CHECK(blocks::with_block(facts.type, [](auto block) { return block.type; }) == facts.type);
    CHECK(blocks::with_block(facts.type, [](auto block) { return sizeof block; }) == std::size_t(facts.bytes));
    CHECK(is_quantised(facts.type) == (facts.elements > 1));
    if (facts.elements > 1)
      REQUIRE_ERROR(row_bytes(facts.type, facts.elements + 1), ErrorKind::shape,
                    "no whole blocks of " + std::string(facts.name));
    REQUIRE_ERROR(row_bytes(facts.type, -facts.elements), ErrorKind::shape, "no whole blocks");
  }
  REQUIRE_ERROR(row_bytes(BlockType::f32, std::int64_t{1} << 62), ErrorKind::overflow, "does not fit 64 bits");
  CHECK(find_block_type("q4_k") == BlockType::q4_k);
  CHECK(find_block_type("Q4_K_M") == std::nullopt);
  CHECK(find_block_type("") == std::nullopt);
}
