// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/data/permutation.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace tutti;

TEST_CASE("a permutation takes every value once") {
  for (std::int64_t size = 0; size < 600; ++size) {
    data::Permutation const order(7, 3, size);
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      std::int64_t const image = order(i);
      REQUIRE((image >= 0 && image < size));
      REQUIRE(!seen[static_cast<std::size_t>(image)]);
      seen[static_cast<std::size_t>(image)] = true;
    }
  }
  data::Permutation const large(1, 0, 100003);
  std::vector<bool> seen(100003);
  for (std::int64_t i = 0; i < 100003; ++i) seen[static_cast<std::size_t>(large(i))] = true;
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

TEST_CASE("seeds and streams give different orders, the same ones the same order") {
  auto const order = [](std::uint64_t seed, std::uint64_t stream) {
    std::vector<std::int64_t> images;
    for (std::int64_t i = 0; i < 1000; ++i) images.push_back(data::Permutation(seed, stream, 1000)(i));
    return images;
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(2, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0) != order(std::uint64_t{1} << 32 | 1, 0));
  CHECK(order(1, 0) != order(1, std::uint64_t{1} << 32));
}

TEST_CASE("very large ranges stay inside") {
  std::int64_t const size = (std::int64_t{1} << 62) + 12345;
  data::Permutation const order(5, 9, size);
  for (std::int64_t i = 0; i < 1000; ++i) {
    std::int64_t const image = order(size - 1 - i);
    REQUIRE((image >= 0 && image < size));
  }
}

TEST_CASE("every position takes every value about equally often over the streams") {
  constexpr int size = 5, streams = 5000;
  int counts[size][size] = {};
  for (std::uint64_t stream = 0; stream < streams; ++stream)
    for (int i = 0; i < size; ++i) ++counts[i][data::Permutation(42, stream, size)(i)];
  double const expected = double(streams) / size, deviation = std::sqrt(expected * (1 - 1.0 / size));
  for (auto const& row : counts)
    for (int const count : row) CHECK(std::abs(count - expected) < 5 * deviation);
}
