// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/exec/context.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

using namespace tutti;

TEST_CASE("working memory is aligned, stays where it is until it has to grow, and may be written whole") {
  exec::Scratch scratch;
  void* last = nullptr;
  std::size_t largest = 0;
  for (std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{1000}, std::size_t{10},
                            std::size_t{5} << 20, std::size_t{64}, std::size_t{5} << 20}) {
    void* const memory = scratch.reserve(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
    std::memset(memory, 0x5a, bytes);
    if (bytes <= largest) CHECK(memory == last);
    largest = std::max(largest, bytes);
    last = memory;
  }
}

TEST_CASE("an impossible amount is an error and loses nothing") {
  exec::Scratch scratch;
  auto* const memory = static_cast<char*>(scratch.reserve(100));
  memory[99] = 7;
  REQUIRE_ERROR(scratch.reserve(std::numeric_limits<std::size_t>::max() - 5), ErrorKind::out_of_memory, "could not be");
  CHECK(scratch.reserve(50) == memory);
  CHECK(memory[99] == 7);
}

TEST_CASE("every thread of a context has memory of its own") {
  exec::Context context({.threads = 3});
  std::vector<void*> blocks(3);
  context.parallel([&](int thread) { blocks[static_cast<std::size_t>(thread)] = context.scratch(thread, 4096); });
  CHECK(blocks[0] != blocks[1]);
  CHECK(blocks[1] != blocks[2]);
  CHECK(blocks[0] != blocks[2]);
}
