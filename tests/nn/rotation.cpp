// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/nn/rotation.hpp>

#include <cmath>

using namespace tutti;
using namespace tutti::nn;

namespace {

StoredModel model_of(RotationScaling const& scaling = {}) {
  LlamaConfig config;
  config.head_size = 8;
  config.max_tokens = 64;
  StoredModel model;
  model.config = config;
  model.rotation = rotation_of(8, 8, 10000, scaling, 64);
  return model;
}
Rotation changed(RotationChange const& change, RotationScaling const& scaling = {}) {
  StoredModel model = model_of(scaling);
  change_rotation(model, change);
  return model.rotation;
}

}  // namespace

TEST_CASE("Rotations are changed by base and scale; what is not said stays") {
  Rotation const plain = model_of().rotation;
  REQUIRE(changed({}).frequencies == plain.frequencies);
  Rotation const based = changed({.base = 500000}), scaled = changed({.scale = 0.25});
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(based.frequencies[i] == Approx(std::pow(500000.0, -2.0 * static_cast<double>(i) / 8)));
    REQUIRE(scaled.frequencies[i] == Approx(plain.frequencies[i] / 4));
  }
  REQUIRE(scaled.scaling.kind == "linear");
  REQUIRE(changed({.kind = "none"}, {.kind = "linear", .factor = 4}).frequencies == plain.frequencies);
  REQUIRE(changed({.attention = 1.5}).magnitude == 1.5);
}

TEST_CASE("Yarn's frequencies follow llama.cpp's formula, of which the share that stays can be said") {
  // theta = interpolated * (1 - mix) + extrapolated * mix, mix = (1 - ramp) * ext_factor
  auto const expected = [](std::size_t pair, double factor, double extrapolation, double fast, double slow,
                           double original) {
    double const base = 10000, rotated = 8, plain = std::pow(base, -2.0 * static_cast<double>(pair) / rotated);
    auto const at = [&](double turns) {
      return rotated * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(base));
    };
    double const low = std::max(0.0, std::floor(at(fast))), high = std::min(rotated - 1, std::ceil(at(slow)));
    double const ramp = std::min(1.0, std::max(0.0, (static_cast<double>(pair) - low) / std::max(0.001, high - low)));
    double const mix = (1 - ramp) * extrapolation;
    return plain / factor * (1 - mix) + plain * mix;
  };
  Rotation const usual = changed({.scale = 0.125, .kind = "yarn"}),
                 half = changed({.scale = 0.125, .extrapolation = 0.5, .fast = 16, .slow = 2, .original_tokens = 4096});
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    REQUIRE(usual.frequencies[i] == Approx(expected(i, 8, 1, 32, 1, 64)));
    REQUIRE(half.frequencies[i] == Approx(expected(i, 8, 0.5, 16, 2, 4096)));
  }
  REQUIRE(usual.magnitude == Approx(1 + 0.1 * std::log(8.0)));
  Rotation const without = changed({.scale = 0.125, .kind = "yarn", .extrapolation = 0});
  REQUIRE(without.frequencies == changed({.scale = 0.125}).frequencies);
  REQUIRE(without.magnitude == 1);
  REQUIRE_ERROR(changed({.kind = "yarn", .fast = 1, .slow = 2}), ErrorKind::configuration, "fast turns");
}

TEST_CASE("A model with learned positions has no rotations to change") {
  StoredModel model;
  model.config = Gpt2Config();
  REQUIRE_NOTHROW(change_rotation(model, {}));
  REQUIRE_ERROR(change_rotation(model, {.base = 5}), ErrorKind::configuration, "learned its positions");
}
