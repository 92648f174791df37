// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/infer/sampler_options.hpp>
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

TEST_CASE("impossible settings are refused by name, with what they may be") {
  auto const refuse = [](SamplerOptions const& options, char const* part) {
    REQUIRE_ERROR(Sampler(options), ErrorKind::configuration, part);
  };
  refuse({.temperature = -1}, "temperature is -1, and must be between 0 and 1000000");
  refuse({.temperature = std::nan("")}, "temperature is nan");
  refuse({.top_k = -1}, "top_k is -1, and must be at least 0");
  refuse({.top_p = -0.5}, "top_p");
  refuse({.top_p = 1.5}, "top_p is 1.5, and must be between 0 and 1");
  refuse({.repeat_penalty = 0}, "repeat_penalty");
  refuse({.repeat_last_n = -2}, "repeat_last_n is -2, and must be at least -1");
  refuse({.dry_base = 0.5}, "dry_base");
  refuse({.mirostat = tutti::setting::Choice<Mirostat>("3")}, "mirostat is 3. Use 0, 1 or 2");
  refuse({.logit_bias = {{-1, 0.0f}}}, "the bias of token -1");
  refuse({.logit_bias = {{1, std::numeric_limits<float>::infinity()}}}, "the bias of token 1 is inf");
}

TEST_CASE("every setting has a name of its own and a default that it accepts") {
  SamplerOptions options;
  std::set<std::string> names;
  for_each_sampler_setting(
      options, [&](char const* name, auto const&, auto const&, char const*) { CHECK(names.insert(name).second); });
  CHECK(names.size() == 22);
  CHECK_NOTHROW(Sampler(options));
}

TEST_CASE("biases are added before all else, and ban") {
  auto const seen = frequencies({.top_k = 2, .logit_bias = {{1, -INFINITY}, {4, 4.0f}, {77, 1.0f}}}, logits);
  CHECK(seen[1] == 0);  // 3 and 4 have 3.0 each
  CHECK(seen[3] == Approx(0.5).margin(0.02));
  CHECK(seen[4] == Approx(0.5).margin(0.02));
  Sampler none({.logit_bias = {{0, -INFINITY}}});
  REQUIRE_ERROR(none(std::array<float, 1>{1.0f}), ErrorKind::invalid_argument, "leave no token");
}

TEST_CASE("what was observed and drawn is penalised, and a reset forgets it") {
  Sampler sampler({.temperature = 0, .repeat_penalty = 10});
  std::array<std::int32_t, 1> const prompt{1};
  sampler.observe(prompt);
  CHECK(sampler(logits) == 3);
  CHECK(sampler(logits) == 2);
  sampler.reset();
  CHECK(sampler(logits) == 1);
  Sampler near({.temperature = 0, .repeat_penalty = 10, .repeat_last_n = 1});
  for (std::int32_t const token : {1, 3, 1, 3}) CHECK(near(logits) == token);
}

TEST_CASE("stages run in the order given, and those left out do not") {
  // Top-k of one first leaves the penalised token, last the other.
  Sampler first(
      {.temperature = 0, .top_k = 1, .repeat_penalty = 10, .stages = {SamplerStage::top_k, SamplerStage::penalties}});
  Sampler last(
      {.temperature = 0, .top_k = 1, .repeat_penalty = 10, .stages = {SamplerStage::penalties, SamplerStage::top_k}});
  Sampler without({.temperature = 0, .repeat_penalty = 10, .stages = {SamplerStage::top_k}});
  for (Sampler* const sampler : {&first, &last, &without}) sampler->observe(1);
  CHECK(first(logits) == 1);
  CHECK(last(logits) == 3);
  CHECK(without(logits) == 1);
}

TEST_CASE("a dynamic temperature rises with the entropy of what is left") {
  // Of equal logits the entropy is the highest there is: temperature 1 + 0.9; of one that stands out it is low.
  std::array<float, 5> const sharp{0, 8, 0, 0, 0};
  auto const mild = frequencies({.temperature = 1, .dynatemp_range = 0.9}, sharp);
  CHECK(mild[1] > 0.9999);
  std::array<float, 5> const flat{0, 0.5f, 0, 0, 0};
  double const p = std::exp(0.5 / 1.897) / (std::exp(0.5 / 1.897) + 4);
  CHECK(frequencies({.temperature = 1, .dynatemp_range = 0.9}, flat)[1] == Approx(p).margin(0.015));
}

TEST_CASE("exclusion of the top happens as often as it is told to") {
  std::array<float, 5> const two{0, 2, 2.5f, -9, -9};
  auto const seen = frequencies({.xtc_probability = 0.5, .xtc_threshold = 0.2}, two);
  double const top = std::exp(2.5) / (1 + std::exp(2.0) + std::exp(2.5));
  CHECK(seen[2] == Approx(0.5 * top).margin(0.02));
}

TEST_CASE("mirostat holds the surprise near what is wanted") {
  // Zipf's law over 2000 tokens.
  std::vector<float> zipf(2000);
  double mass = 0;
  for (std::size_t i = 0; i < zipf.size(); ++i) {
    zipf[i] = static_cast<float>(-1.1 * std::log(static_cast<double>(i + 1)));
    mass += std::exp(double(zipf[i]));
  }
  for (Mirostat const kind : {Mirostat::one, Mirostat::two})
    for (double const tau : {2.0, 4.0}) {
      Sampler sampler({.mirostat = kind, .mirostat_tau = tau});
      double surprise = 0;
      int const draws = 4000;
      std::set<std::int32_t> seen;
      for (int i = 0; i < draws; ++i) {
        std::int32_t const token = sampler(zipf);
        seen.insert(token);
        surprise += -(double(zipf[static_cast<std::size_t>(token)]) - std::log(mass)) / std::log(2.0) / draws;
      }
      INFO("mirostat " << static_cast<int>(kind) << ", tau " << tau << ": " << surprise << " bits");
      CHECK(seen.size() > 3);
      CHECK(std::abs(surprise - tau) < 1.5);
    }
}

TEST_CASE("a restriction drops tokens before any stage") {
  Sampler sampler({.temperature = 0});
  CHECK(sampler(logits, [](Candidates& c) { c.keep_if([](std::int32_t id) { return id % 2 == 0; }); }) == 2);
  REQUIRE_ERROR(sampler(logits, [](Candidates& c) { c.keep_if([](std::int32_t) { return false; }); }),
                ErrorKind::invalid_argument, "leave no token");
}

TEST_CASE("the most likely tokens have the probabilities of the softmax") {
  auto const two = most_likely(logits, 2);
  REQUIRE(two.size() == 2);
  CHECK(two[0].id == 1);
  CHECK(two[1].id == 3);
  double mass = 0;
  for (float const logit : logits) mass += std::exp(double(logit));
  CHECK(two[0].probability == Approx(std::exp(3.0) / mass));
  CHECK(most_likely(logits, 99).size() == 5);
  CHECK(most_likely({}, 3).empty());
}

TEST_CASE("a seed gives these tokens on every machine") {
  std::vector<float> many(300);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>((i * 37) % 101) / 16;
  SamplerOptions const options{.temperature = 0.9,
                               .top_k = 60,
                               .top_p = 0.98,
                               .min_p = 0.01,
                               .xtc_probability = 0.3,
                               .repeat_penalty = 1.3,
                               .frequency_penalty = 0.1,
                               .dry_multiplier = 0.8,
                               .seed = 5};
  Sampler sampler(options);
  std::vector<std::int32_t> drawn;
  for (int i = 0; i < 16; ++i) drawn.push_back(sampler(many));
  CHECK(drawn == std::vector<std::int32_t>{259, 60, 251, 38, 98, 262, 109, 196, 210, 8, 185, 237, 117, 161, 136, 292});
}
