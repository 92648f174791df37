// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/block_quantise.hpp> <tutti/core/block_fit.hpp>
#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>

#include "core/block_oracle.hpp"
#include "support/catch.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace tutti;

namespace {

/// About normal, from a generator that is the same everywhere.
std::vector<float> bell(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  for (float& v : x) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<double>(seed >> 40) / 16777216.0;
    }
    v = static_cast<float>(0.02 * (sum - 6));
  }
  return x;
}

std::vector<float> there_and_back(BlockType type, std::vector<float> const& x) {
  std::vector<unsigned char> bytes(std::size_t(row_bytes(type, std::int64_t(x.size()))));
  quantise(type, x.data(), std::int64_t(x.size()), bytes.data());
  std::vector<float> y(x.size());
  dequantise(type, bytes.data(), std::int64_t(x.size()), y.data());
  return y;
}

double root_mean_square(std::vector<float> const& x, std::vector<float> const& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (double(x[i]) - y[i]) * (double(x[i]) - y[i]);
  return std::sqrt(sum / double(x.size()));
}

}  // namespace

TEST_CASE("the error of every type on normal numbers is below its bound") {
  // Relative to the standard deviation. The bounds lie between what these fits reach and what llama.cpp's quantiser
  // does without importances on normal numbers; Q8_0 is alike in both.
  struct Row {
    BlockType type;
    double bound;
  };
  static Row const rows[] = {
      {BlockType::f16, 0.0004},  {BlockType::bf16, 0.003},  {BlockType::q4_0, 0.083},    {BlockType::q4_1, 0.0715},
      {BlockType::q5_0, 0.0413}, {BlockType::q5_1, 0.0346}, {BlockType::q8_0, 0.0054},   {BlockType::q2_k, 0.270},
      {BlockType::q3_k, 0.1465}, {BlockType::q4_k, 0.0703}, {BlockType::q5_k, 0.0352},   {BlockType::q6_k, 0.01755},
      {BlockType::iq4_nl, 0.0752}, {BlockType::iq4_xs, 0.0758},
  };
  std::vector<float> const x = bell(64 * 256, 3);
  double const deviation = root_mean_square(x, std::vector<float>(x.size(), 0.0f));
  for (auto const [type, bound] : rows) {
    double const error = root_mean_square(x, there_and_back(type, x)) / deviation;
    CAPTURE(std::string(name(type)), error, bound);
    CHECK(error < bound);
    CHECK(error > bound / 4);
  }
}

TEST_CASE("numbers that a block holds come back nearly as they were") {
  for (auto const& facts : detail::block_facts) {
    // Blocks whose scales use their whole range, as those of a quantiser do.
    std::vector<float> const held = there_and_back(facts.type, bell(16 * 256, 9));
    std::vector<float> const again = there_and_back(facts.type, held);
    double const size = root_mean_square(held, std::vector<float>(held.size(), 0.0f));
    CAPTURE(std::string(facts.name));
    CHECK(root_mean_square(held, again) <= 0.03 * size);
  }
}

TEST_CASE("zeros stay zeros, and constants and lone peaks stay close") {
  for (auto const& facts : detail::block_facts) {
    CAPTURE(std::string(facts.name));
    std::vector<float> x(512, 0.0f);
    CHECK(there_and_back(facts.type, x) == x);
    for (float const value : {1.0f, -1.0f, 3e-5f, 1000.0f}) {
      std::vector<float> const constant(512, value);
      for (float const v : there_and_back(facts.type, constant))
        REQUIRE(std::fabs(v - value) <= 0.05f * std::fabs(value));
      x[77] = value;
      std::vector<float> const peak = there_and_back(facts.type, x);
      CHECK(std::fabs(peak[77] - value) <= 0.1f * std::fabs(value));
    }
    // Too small for the scales: zero or the neighbour of zero, never NaN.
    for (float const v : there_and_back(facts.type, std::vector<float>(512, 1e-30f))) REQUIRE(std::fabs(v) <= 1e-7f);
  }
}

TEST_CASE("equal numbers give equal bytes wherever their block stands") {
  for (auto const& facts : detail::block_facts) {
    std::vector<float> x = bell(256, 4);
    x.insert(x.end(), x.begin(), x.begin() + 256);
    std::vector<unsigned char> bytes(std::size_t(row_bytes(facts.type, 512)) + 1);
    quantise(facts.type, x.data(), 512, bytes.data() + 1);  // at an odd address
    std::size_t const half = bytes.size() / 2;
    CHECK(std::memcmp(bytes.data() + 1, bytes.data() + 1 + half, half) == 0);
  }
}

TEST_CASE("what no code stands for is refused by name and place") {
  for (auto const& facts : detail::block_facts) {
    if (facts.elements == 1) continue;
    std::vector<float> x(512, 1.0f);
    std::vector<unsigned char> bytes(std::size_t(row_bytes(facts.type, 512)));
    x[300] = std::numeric_limits<float>::quiet_NaN();
    REQUIRE_ERROR(quantise(facts.type, x.data(), 512, bytes.data()), ErrorKind::invalid_argument, "number 300 is NaN");
    x[300] = -std::numeric_limits<float>::infinity();
    REQUIRE_ERROR(quantise(facts.type, x.data(), 512, bytes.data()), ErrorKind::invalid_argument,
                  "number 300 is infinite");
    x[300] = 3e38f;
    REQUIRE_ERROR(quantise(facts.type, x.data(), 512, bytes.data()), ErrorKind::overflow, "too large for the float16");
    REQUIRE_ERROR(quantise(facts.type, x.data(), 31, bytes.data()), ErrorKind::shape, "no whole blocks");
  }
  // Numbers alone keep NaN and infinity.
  CHECK(std::isnan(there_and_back(BlockType::bf16, {std::numeric_limits<float>::quiet_NaN()})[0]));
  CHECK(std::isinf(there_and_back(BlockType::f16, {1e30f})[0]));
}
