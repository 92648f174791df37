// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/error.hpp>
#include <tutti/tensor/random.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace tutti;

using Words = std::array<std::uint32_t, 4>;

// The known answers published with the generator (Random123, kat_vectors).
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST_CASE("Philox gives the published known answers at run time too") {
  Words counter{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  CHECK(philox4x32(counter, {0xa4093822, 0x299f31d0}) == Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a fill is a pure function of seed, stream and index: any split gives the same elements") {
  CounterRandom const random{42, 7};
  std::vector<float> whole(103);
  random.fill_normal(whole, 1.0f, 2.0f);
  std::vector<float> uniform(103);
  random.fill_uniform(uniform, -1.0f, 3.0f);
  for (std::size_t cut : {0u, 1u, 2u, 3u, 4u, 5u, 50u, 102u, 103u}) {
    std::vector<float> parts(103);
    random.fill_normal(std::span(parts).first(cut), 1.0f, 2.0f);
    random.fill_normal(std::span(parts).subspan(cut), 1.0f, 2.0f, cut);
    CHECK(parts == whole);
    random.fill_uniform(std::span(parts).first(cut), -1.0f, 3.0f);
    random.fill_uniform(std::span(parts).subspan(cut), -1.0f, 3.0f, cut);
    CHECK(parts == uniform);
  }
  std::vector<float> plain(103);
  random.fill_uniform(plain);
  std::vector<float> standard(103);
  random.fill_normal(standard);
  for (std::size_t i = 0; i < 103; ++i) {
    CHECK(plain[i] == random.uniform(i));
    CHECK(standard[i] == random.normal(i));
  }
  std::vector<float> far(5);
  random.fill_uniform(far, 0, 1, std::uint64_t{1} << 40);
  CHECK(far[3] == random.uniform((std::uint64_t{1} << 40) + 3));
}

TEST_CASE("seeds and streams differ, and 64-bit ones use all their bits") {
  CounterRandom const base{1, 1};
  CHECK(CounterRandom{std::int64_t{1}, short{1}} == base);
  CHECK(CounterRandom{-1, 0}.seed == ~std::uint64_t{0});
  for (CounterRandom const& other :
       {CounterRandom{2, 1}, CounterRandom{1, 2}, CounterRandom{1 + (std::uint64_t{1} << 32), 1},
        CounterRandom{1, 1 + (std::uint64_t{1} << 32)}}) {
    int same = 0;
    for (std::uint64_t i = 0; i < 100; ++i) same += base.bits(i) == other.bits(i);
    CHECK(same == 0);
  }
  CHECK(base.bits(0) != base.bits(std::uint64_t{4} << 32));
}

TEST_CASE("moments of 100000 uniforms and normals lie within five standard errors") {
  CounterRandom const random{3, 0};
  constexpr std::uint64_t count = 100000;
  double sum = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  double pairs = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    sum += random.uniform(i);
    double const normal = random.normal(i);
    normal_sum += normal;
    normal_squares += normal * normal;
    if (i % 2 == 1) pairs += normal * random.normal(i - 1);
  }
  double const n = static_cast<double>(count);
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(normal_sum / n) < 5 / std::sqrt(n));
  CHECK(std::abs(normal_squares / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(pairs / (n / 2)) < 5 / std::sqrt(n / 2));
}
