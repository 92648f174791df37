// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Bookkeeping of shared memory: what is handed out never overlaps, and everything comes back.

#include "support/catch.hpp"

#include <tutti/comm/shared/space.hpp>

#include <map>
#include <random>

using tutti::comm::shared::Space;

TEST_CASE("random allocations never overlap, and released space is whole again") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::uint64_t const size = 1 << 20;
    Space space(size);
    std::map<std::uint64_t, std::uint64_t> live;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 == 0 || live.empty()) {
        std::uint64_t const bytes = random() % 5000;
        std::uint64_t const at = space.allocate(bytes);
        if (at == Space::none) continue;
        REQUIRE(at % 64 == 0);
        REQUIRE(at + bytes <= size);
        auto const next = live.lower_bound(at);
        if (next != live.end()) REQUIRE(at + (bytes == 0 ? 1 : bytes) <= next->first);
        if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= at);
        REQUIRE(live.emplace(at, bytes).second);
        REQUIRE(space.high() >= at + bytes);
      } else {
        auto const victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        space.release(victim->first, victim->second);
        live.erase(victim);
      }
    }
    for (auto const& [at, bytes] : live) space.release(at, bytes);
    CHECK(space.holes() == 1);
    CHECK(space.allocate(size) == 0);
    CHECK(space.allocate(1) == Space::none);
  }
}

TEST_CASE("impossible sizes find no space") {
  Space space(1000);
  CHECK(space.allocate(961) == Space::none);  // 1000 bytes are fifteen granules of 64
  CHECK(space.allocate(~std::uint64_t{0}) == Space::none);
  CHECK(space.allocate(~std::uint64_t{0} - 63) == Space::none);
  CHECK(space.allocate(960) == 0);
  CHECK(Space(10).allocate(1) == Space::none);
}
