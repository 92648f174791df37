// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/core/hash.hpp>

#include <set>
#include <vector>

using tutti::hash_bytes;

TEST_CASE("every length and every flipped bit gives another hash") {
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 37);
  std::set<std::uint64_t> seen;
  std::size_t tries = 0;
  for (std::size_t length = 0; length <= bytes.size(); ++length, ++tries)
    seen.insert(hash_bytes({bytes.data(), length}));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    seen.insert(hash_bytes(bytes));
    ++tries;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
  CHECK(seen.size() == tries);
}

TEST_CASE("zeros of different lengths, words in another lane or round, and another seed are told apart") {
  std::vector<std::byte> zeros(64);
  std::set<std::uint64_t> seen;
  for (std::size_t length = 0; length <= 64; ++length) seen.insert(hash_bytes({zeros.data(), length}));
  CHECK(seen.size() == 65);
  std::vector<std::byte> a(64), b(64), c(64);
  a[0] = b[32] = c[8] = std::byte{1};
  CHECK(hash_bytes(a) != hash_bytes(b));
  CHECK(hash_bytes(a) != hash_bytes(c));
  CHECK(hash_bytes(a, 1) != hash_bytes(a, 2));
  CHECK(hash_bytes(a) == hash_bytes(std::vector<std::byte>(a)));
}
