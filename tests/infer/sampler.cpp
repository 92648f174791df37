// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/infer/sampler.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <set>

using tutti::ErrorKind;
using namespace tutti::infer;

namespace {

/// Frequencies of `draws` samples.
std::array<double, 5> frequencies(SamplerOptions options, std::span<float const> logits, int draws = 20000) {
  Sampler sampler(options);
  std::array<double, 5> counts{};
  for (int i = 0; i < draws; ++i) counts[static_cast<std::size_t>(sampler(logits))] += 1.0 / draws;
  return counts;
}

std::array<float, 5> const logits{1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

}  // namespace

TEST_CASE("temperature zero takes the most likely token, the lowest id among equals") {
  Sampler sampler({.temperature = 0});
  for (int i = 0; i < 10; ++i) CHECK(sampler(logits) == 1);
}

TEST_CASE("frequencies follow the softmax at the given temperature") {
  for (double temperature : {0.5, 1.0, 2.0}) {
    auto const seen = frequencies({.temperature = temperature}, logits);
    double mass = 0;
    for (float logit : logits) mass += std::exp(double(logit) / temperature);
    for (std::size_t i = 0; i < 5; ++i) {
      double const p = std::exp(double(logits[i]) / temperature) / mass;
      CHECK(std::abs(seen[i] - p) < 5 * std::sqrt(p * (1 - p) / 20000) + 1e-9);  // five standard deviations
    }
  }
}

TEST_CASE("top-k keeps the k most likely and top-p the smallest set that reaches p") {
  auto seen = frequencies({.top_k = 2}, logits);
  CHECK(seen[0] + seen[2] + seen[4] == 0);
  CHECK(seen[1] == Approx(0.5).margin(0.02));
  seen = frequencies({.top_p = 0.75}, logits);  // masses: .399 .399 .147 .054 .0073; two reach .798
  CHECK(seen[0] + seen[2] + seen[4] == 0);
  seen = frequencies({.top_p = 0.85}, logits);
  CHECK(seen[2] > 0);
  CHECK(seen[0] + seen[4] == 0);
  seen = frequencies({.top_p = 1e-9}, logits);
  CHECK(seen[1] == Approx(1.0));
}

TEST_CASE("the same seed draws the same tokens, another seed others") {
  Sampler a({.seed = 7}), b({.seed = 7}), c({.seed = 8});
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    auto const x = a(logits);
    CHECK(x == b(logits));
    different += x != c(logits);
  }
  CHECK(different > 10);
}

TEST_CASE("logits that are not finite are never drawn, and all of them refused") {
  float const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  std::array<float, 4> const odd{nan, -infinity, 0.0f, infinity};
  Sampler sampler({});
  for (int i = 0; i < 20; ++i) CHECK(sampler(odd) == 2);
  std::array<float, 2> const none{nan, -infinity};
  REQUIRE_ERROR(sampler(none), ErrorKind::invalid_argument, "none of the 2 logits is finite");
  REQUIRE_ERROR(sampler(std::span<float const>{}), ErrorKind::invalid_argument, "none of the 0");
}

TEST_CASE("impossible options are refused by name") {
  REQUIRE_ERROR(Sampler({.temperature = -1}), ErrorKind::configuration, "temperature");
  REQUIRE_ERROR(Sampler({.temperature = std::nan("")}), ErrorKind::configuration, "temperature");
  REQUIRE_ERROR(Sampler({.top_k = -1}), ErrorKind::configuration, "top-k");
  REQUIRE_ERROR(Sampler({.top_p = 0}), ErrorKind::configuration, "top-p");
  REQUIRE_ERROR(Sampler({.top_p = 1.5}), ErrorKind::configuration, "top-p");
}
