// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/error.hpp>
#include <tutti/tensor/mt19937.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

using tutti::Mt19937;

namespace {

std::uint64_t hash_of(std::vector<float> const& values) {
  std::uint64_t hash = 14695981039346656037ull;
  for (float value : values)
    for (int byte = 0; byte < 4; ++byte)
      hash = (hash ^ ((std::bit_cast<std::uint32_t>(value) >> (8 * byte)) & 255u)) * 1099511628211ull;
  return hash;
}

/// The recording's logarithm and sine are those of glibc 2.36; others may round the last bit differently.
bool same_mathematics() {
#if defined(__GLIBC__)
  return std::string(gnu_get_libc_version()) == "2.36";
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("the stream of 32-bit draws is that of std::mt19937") {
  for (std::uint32_t seed : {0u, 1u, 42u, 5489u, 4294967295u}) {
    Mt19937 ours(seed);
    std::mt19937 theirs(seed);
    int wrong = 0;
    for (int i = 0; i < 3000; ++i) wrong += ours.next() != theirs();
    CHECK(wrong == 0);
  }
}

TEST_CASE("uniforms, normals and permutations have the bits that llm.c's generator gave") {
  char const* const root = std::getenv("TUTTI_SOURCE_ROOT");
  std::ifstream file((root == nullptr ? std::string(".") : std::string(root)) + "/tests/golden/mt19937.txt");
  REQUIRE(file.good());
  int lines = 0;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string kind;
    std::uint32_t seed = 0;
    std::size_t size = 0;
    std::uint64_t hash = 0;
    std::uint32_t next = 0;
    fields >> kind >> seed >> size >> std::hex >> hash >> std::dec >> next >> std::hex;
    REQUIRE(!fields.fail());
    std::vector<float> values(size);
    Mt19937 generator(seed);
    if (kind == "normal") generator.fill_normal(values, 0.0f, 0.02f);
    else if (kind == "shifted") generator.fill_normal(values, 0.25f, 3.0f);
    else if (kind == "uniform") generator.fill_uniform(values, -1.5f, 2.25f);
    else {
      std::iota(values.begin(), values.end(), 0.0f);
      generator.shuffle(std::span<float>(values));
    }
    INFO(line.substr(0, 60));
    CHECK(generator.next() == next);
    bool const exact = kind == "uniform" || kind == "shuffle" || same_mathematics();
    if (exact) CHECK(hash_of(values) == hash);
    double const scale = kind == "normal" ? 0.02 : 3.0;
    for (std::size_t i = 0; i < size && i < 20; ++i) {
      std::uint32_t bits = 0;
      fields >> bits;
      float const recorded = std::bit_cast<float>(bits);
      if (exact ? std::bit_cast<std::uint32_t>(values[i]) != bits : std::abs(values[i] - recorded) > 4e-6 * scale)
        FAIL("element " << i << ": " << values[i] << ", recorded " << recorded);
    }
    ++lines;
  }
  CHECK(lines == 120);
}

TEST_CASE("PyTorch's first numbers after torch.manual_seed(42)") {
  Mt19937 generator(42);
  std::vector<float> values(16);
  generator.fill_normal(values);
  double const expected[] = {1.9269, 1.4873, 0.9007, -2.1055, 0.6784, -1.2345, -0.0431, -1.6047,
                             -0.7521, 1.6487, -0.3925, -1.4036, -0.7279, -0.5594, -0.7688, 0.7624};
  for (std::size_t i = 0; i < 16; ++i) CHECK(std::abs(values[i] - expected[i]) < 5.1e-5);
}

TEST_CASE("a saved state continues the sequence from any position") {
  Mt19937 generator(7);
  for (int skipped : {0, 1, 622, 1, 1, 700}) {
    for (int i = 0; i < skipped; ++i) generator.next();
    Mt19937 resumed(generator.state());
    CHECK(resumed.state() == generator.state());
    Mt19937 copy = generator;
    int wrong = 0;
    for (int i = 0; i < 1300; ++i) {
      std::uint32_t const expected = copy.next();
      wrong += resumed.next() != expected;
    }
    CHECK(wrong == 0);
  }
  Mt19937::State damaged;
  damaged.used = 4000000000u;
  Mt19937(damaged).next();  // a position beyond the end is clamped
}

TEST_CASE("filling nothing draws nothing, and a shuffle is a permutation") {
  Mt19937 generator(3);
  auto const before = generator.state();
  generator.fill_normal({});
  generator.fill_uniform({});
  generator.shuffle(std::span<int>());
  std::vector<int> one{5};
  generator.shuffle(std::span<int>(one));
  CHECK(generator.state() == before);
  std::vector<int> order(1000);
  std::iota(order.begin(), order.end(), 0);
  generator.shuffle(std::span<int>(order));
  CHECK(!std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("53-bit and 24-bit uniforms stay below one") {
  Mt19937 generator(11);
  bool inside = true;
  for (int i = 0; i < 20000; ++i) {
    double const wide = generator.uniform_double();
    float const narrow = generator.uniform_float();
    inside = inside && wide >= 0 && wide < 1 && narrow >= 0 && narrow < 1;
  }
  CHECK(inside);
}

TEST_CASE("draws that are passed over leave the generator where drawing leaves it") {
  for (std::size_t count : {0u, 1u, 7u, 15u, 16u, 17u, 33u, 623u, 624u, 1000u, 5000u}) {
    INFO(count << " elements");
    Mt19937 draws(7), skips(7), words(7), discards(7);
    std::vector<float> values(count);
    for (int turn = 0; turn < 3; ++turn) {
      draws.fill_normal(values);
      skips.skip_normal(count);
      CHECK(draws.state() == skips.state());
      for (std::size_t i = 0; i < count; ++i) words.next();
      discards.discard(count);
      CHECK(words.state() == discards.state());
    }
  }
}
