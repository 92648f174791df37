// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/comm/shared/holders.hpp>

#include <cstdint>
#include <vector>

using tutti::comm::shared::Holders;

TEST_CASE("the last of a block's holders learns that it is the last, whatever the size of the block") {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4097}}) {
    CHECK(Holders::total_bytes(bytes) >= bytes + sizeof(Holders));
    std::vector<std::byte> memory(Holders::total_bytes(bytes) + 64);
    void* const block = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    Holders* const made = Holders::create(block, bytes, 3);
    CHECK(reinterpret_cast<std::byte*>(made) >= static_cast<std::byte*>(block) + bytes);
    Holders* const found = Holders::of(block, bytes);
    CHECK(found == made);
    CHECK_FALSE(found->let_go());
    CHECK_FALSE(found->let_go());
    CHECK_FALSE(found->none());
    CHECK(found->let_go());
    CHECK(found->none());
  }
}
