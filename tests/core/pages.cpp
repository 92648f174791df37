// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/pages.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pages = tutti::pages;

TEST_CASE("mapped pages are zeros, at the bounds of a page, and again after clear, whatever part of them it names") {
  constexpr std::size_t bytes = 5 * 4096 + 100;
  auto* const memory = static_cast<std::byte*>(pages::map_zeros(bytes));
  REQUIRE(memory != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  std::span const all(memory, bytes);
  auto const zeros = [](std::span<std::byte const> part) {
    return std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  auto const ones = [](std::span<std::byte const> part) {
    return std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{1}; });
  };
  CHECK(zeros(all));
  for (std::size_t begin : {0u, 1u, 4095u, 4096u, 4097u, 8192u})
    for (std::size_t size : {0u, 1u, 4095u, 4096u, 4097u, 8192u, 12000u}) {
      std::fill(all.begin(), all.end(), std::byte{1});
      pages::clear(memory + begin, size);
      CAPTURE(begin, size);
      CHECK((ones(all.first(begin)) && zeros(all.subspan(begin, size)) && ones(all.subspan(begin + size))));
    }
  pages::unmap(memory, bytes);
}

TEST_CASE("more pages than there are addresses are refused with null") {
  CHECK(pages::map_zeros(SIZE_MAX / 2) == nullptr);
}

TEST_CASE("huge pages may be asked for at the bounds of one") {
  auto* const memory = static_cast<std::byte*>(pages::map_zeros(3 * pages::huge));
  REQUIRE(memory != nullptr);
  auto const address = reinterpret_cast<std::uintptr_t>(memory);
  std::byte* const first = memory + ((address + pages::huge - 1) / pages::huge * pages::huge - address);
  pages::prefer_huge(first, pages::huge);
  first[pages::huge - 1] = std::byte{1};
  CHECK((first[0] == std::byte{0} && first[pages::huge - 1] == std::byte{1}));
  pages::unmap(memory, 3 * pages::huge);
}
