// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/block_dequantise.hpp> <tutti/core/block_layout.hpp>
#include <tutti/core/block_dequantise.hpp>

#include "core/block_oracle.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace tutti;

TEST_CASE("every number of a block is what the formula of its type gives, bit for bit") {
  for (auto const& facts : detail::block_facts) {
    CAPTURE(std::string(facts.name));
    int const count = 500;
    std::vector<unsigned char> const bytes = test::block_bytes(facts, count, 11);
    std::vector<float> y(std::size_t(count * facts.elements));
    dequantise(facts.type, bytes.data(), count * facts.elements, y.data());
    int wrong = 0;
    for (int i = 0; i < count * facts.elements; ++i) {
      float const expected =
          test::block_value(facts.type, bytes.data() + i / facts.elements * facts.bytes, i % facts.elements);
      wrong += std::bit_cast<std::uint32_t>(y[std::size_t(i)]) != std::bit_cast<std::uint32_t>(expected);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("rows may lie at odd addresses, and be empty") {
  for (auto const& facts : detail::block_facts) {
    std::vector<unsigned char> const bytes = test::block_bytes(facts, 2, 5);
    std::vector<unsigned char> shifted(bytes.size() + 1);
    std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
    std::vector<float> a(std::size_t(2 * facts.elements)), b = a;
    dequantise(facts.type, bytes.data(), 2 * facts.elements, a.data());
    dequantise(facts.type, shifted.data() + 1, 2 * facts.elements, b.data());
    CHECK(a == b);
    dequantise(facts.type, nullptr, 0, nullptr);
    if (facts.elements > 1)
      REQUIRE_ERROR(dequantise(facts.type, bytes.data(), 1, a.data()), ErrorKind::shape, "no whole blocks");
  }
}

TEST_CASE("a scale that is NaN or infinite gives NaN or infinity, and harms nothing else") {
  blocks::Q4_0 block{};
  block.d = float16(std::numeric_limits<float>::quiet_NaN());
  float y[32];
  dequantise(BlockType::q4_0, &block, 32, y);
  for (float v : y) CHECK(v != v);
  block.d = float16(std::numeric_limits<float>::infinity());
  dequantise(BlockType::q4_0, &block, 32, y);
  for (float v : y) CHECK(v == -std::numeric_limits<float>::infinity());
}
