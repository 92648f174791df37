// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/optim/sgd.hpp>
// Covers: <tutti/parallel/fragments.hpp>
// Covers: <tutti/parallel/outer_gradient.hpp>
// Covers: <tutti/parallel/outer_optimizer.hpp>
#include "support/catch.hpp"

#include <tutti/exec/context.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_gradient.hpp>
#include <tutti/parallel/outer_optimizer.hpp>
#include <tutti/tensor/random.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace tutti;
using parallel::OuterBits;

namespace {

constexpr OuterBits all_bits[] = {OuterBits::float32, OuterBits::bfloat16, OuterBits::int8, OuterBits::int4};

/// Parameters of a model of five layers, and a moment that is none.
graph::State model_like(float first = 0) {
  graph::State state;
  auto const parameter = [&](char const* name, Shape const& shape, bool stacked) {
    graph::Field* const field = state.add(name, DType::float32, shape);
    field->parameter = true;
    field->stacked = stacked;
    for (float& element : field->view<float>().elements()) element = first++;
  };
  parameter("table", {11, 3}, false);
  parameter("blocks.weight", {5, 2, 3}, true);
  parameter("blocks.bias", {5, 2}, true);
  parameter("norm", {3}, false);
  state.add("m.table", DType::float32, {11, 3});
  return state;
}

std::vector<float> noise(std::size_t count, std::uint64_t seed, float deviation = 1) {
  std::vector<float> values(count);
  CounterRandom{seed, 0}.fill_normal(std::span<float>(values), 0, deviation);
  return values;
}

std::vector<std::byte> encoded(OuterBits bits, std::span<float const> values) {
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(parallel::encoded_bytes(bits, static_cast<std::int64_t>(values.size()))));
  parallel::encode(bits, values, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("fragments hold every element of every parameter once, layers strided, sizes even") {
  graph::State const state = model_like();
  for (int count : {1, 2, 3, 5}) {
    INFO(count << " fragments");
    auto const fragments = parallel::fragments_of(state, count);
    REQUIRE(fragments.size() == static_cast<std::size_t>(count));
    std::map<std::string, std::vector<int>> seen;
    for (std::size_t f = 0; f < fragments.size(); ++f)
      for (parallel::Piece const& piece : fragments[f]) {
        auto& of = seen[piece.field];
        of.resize(static_cast<std::size_t>(state.find(piece.field)->shape.size()));
        for (std::int64_t i = piece.first; i < piece.first + piece.count; ++i) ++of[static_cast<std::size_t>(i)];
        if (count > 1 && piece.field == "blocks.bias") CHECK(piece.first / 2 % count == static_cast<std::int64_t>(f));
      }
    CHECK(seen.size() == 4);
    for (auto const& [name, times] : seen)
      for (int const n : times) CHECK(n == 1);
  }
  CHECK_THROWS_WITH(parallel::fragments_of(state, 8), Catch::Contains("Ask for fewer"));
  CHECK_THROWS_WITH(parallel::fragments_of(state, 0), Catch::Contains("one or more"));
}

TEST_CASE("what is gathered from one state and scattered into another arrives") {
  graph::State const from = model_like(1);
  graph::State to = model_like(1000), mixed = model_like(5000);
  for (parallel::Fragment const& fragment : parallel::fragments_of(from, 3)) {
    std::vector<float> flat(static_cast<std::size_t>(parallel::size(fragment)));
    parallel::gather(from, fragment, flat);
    std::vector<float> swapped = flat;
    parallel::scatter(flat, fragment, to);
    parallel::exchange(mixed, fragment, swapped);
    CHECK(swapped[0] >= 5000);
  }
  for (char const* name : {"table", "blocks.weight", "blocks.bias", "norm"}) {
    auto const wanted = from.find(name)->view<float>(), got = to.find(name)->view<float>();
    for (std::int64_t i = 0; i < wanted.size(); ++i) {
      CHECK(got.data()[i] == wanted.data()[i]);
      CHECK(mixed[name].data()[i] == wanted.data()[i]);
    }
  }
  std::vector<float> wrong(5);
  CHECK_THROWS_AS(parallel::gather(from, parallel::fragments_of(from, 1)[0], wrong), Error);
  std::vector<float> two(2);
  CHECK_THROWS_WITH(parallel::gather(from, {{"norm", 2, 2}}, two), Catch::Contains("no elements 2 to 4 of 'norm'"));
}

TEST_CASE("outer gradients keep to half a step of their format, whatever their number") {
  for (std::size_t count : {0u, 1u, 2u, 127u, 128u, 129u, 1000u}) {
    std::vector<float> const values = noise(count, count + 1, 0.01f);
    for (OuterBits const bits : all_bits) {
      INFO(count << " values, format " << static_cast<int>(bits));
      std::vector<std::byte> const bytes = encoded(bits, values);
      std::vector<float> back(count, -1);
      parallel::decode(bits, bytes, back);
      for (std::size_t first = 0; first < count; first += 128) {
        std::size_t const end = std::min(count, first + 128);
        float largest = 0;
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
        for (std::size_t i = first; i < end; ++i) {
          float const off = std::abs(back[i] - values[i]);
          if (bits == OuterBits::float32) CHECK(off == 0);
          if (bits == OuterBits::bfloat16) CHECK(off <= std::abs(values[i]) / 256);
          if (bits == OuterBits::int8) CHECK(off <= largest / 127 * 0.5001f);
          if (bits == OuterBits::int4) CHECK(off <= largest / 7 * 0.5001f);
        }
      }
      std::vector<std::byte> longer = bytes;
      longer.push_back({});
      CHECK_THROWS_WITH(parallel::decode(bits, longer, back), Catch::Contains("bytes are not"));
    }
  }
  CHECK(parallel::encoded_bytes(OuterBits::int4, 128 * 100) == 128 * 100 / 2 + 400);
}

TEST_CASE("zeros, tiny values and the largest ones survive; what is not finite is told of") {
  for (OuterBits const bits : all_bits) {
    INFO("format " << static_cast<int>(bits));
    std::vector<float> const values = {0, -0.0f, 1e-44f, -1e-44f, 0};
    std::vector<float> back(values.size(), 7);
    parallel::decode(bits, encoded(bits, values), back);
    for (float const value : back) CHECK(std::abs(value) <= 1e-43f);
    float const most = std::numeric_limits<float>::max() / 2;
    std::vector<float> const large = {most, -most, most / 7};
    back.resize(3);
    parallel::decode(bits, encoded(bits, large), back);
    CHECK(back[0] > 0.99f * most);
    CHECK(back[1] < -0.99f * most);
    for (float const bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> const broken = {1, bad, 2};
      if (bits == OuterBits::float32 || bits == OuterBits::bfloat16) {
        parallel::decode(bits, encoded(bits, broken), back);
        CHECK(!std::isfinite(back[1]));
      } else {
        CHECK_THROWS_WITH(parallel::decode(bits, encoded(bits, broken), back), Catch::Contains("diverged"));
      }
    }
  }
}

TEST_CASE("error feedback sends in the end what rounding took") {
  std::vector<float> const values = noise(500, 3);
  for (OuterBits const bits : all_bits) {
    INFO("format " << static_cast<int>(bits));
    std::vector<float> residual(values.size()), arrived(values.size()), back(values.size());
    int const rounds = 50;
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(parallel::encoded_bytes(bits, 500)));
      parallel::encode_with_feedback(bits, values, residual, bytes);
      parallel::decode(bits, bytes, back);
      for (std::size_t i = 0; i < back.size(); ++i) arrived[i] += back[i];
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      // The sum lacks the last residual alone, which is at most half a step.
      CHECK(std::abs(arrived[i] + residual[i] - rounds * values[i]) < 1e-3f * rounds);
      CHECK(std::abs(residual[i]) < 0.6f);
    }
    if (bits == OuterBits::float32)
      for (float const left : residual) CHECK(left == 0);
  }
}

TEST_CASE("the outer optimizer is Nesterov's momentum, by hand") {
  exec::Context context;
  parallel::OuterOptimizer outer(context, {3, 1000}, {.learning_rate = 0.7, .momentum = 0.9});
  CHECK(outer.fragments() == 2);
  for (int f : {0, 1}) {
    std::vector<double> parameters, momentum(outer.parameters(f).size());
    for (float& value : outer.parameters(f)) parameters.push_back(value = static_cast<float>(parameters.size()));
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<float> const gradient = noise(parameters.size(), step, 2);
      outer.step(f, gradient);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        momentum[i] = 0.9 * momentum[i] + gradient[i];
        parameters[i] -= 0.7 * (gradient[i] + 0.9 * momentum[i]);
        CHECK(outer.parameters(f)[i] == Approx(parameters[i]).margin(1e-3));
        CHECK(outer.momentum(f)[i] == Approx(momentum[i]).margin(1e-3));
      }
    }
  }
  CHECK_THROWS_AS(parallel::OuterOptimizer(context, {3}, {.learning_rate = 0}), Error);
  CHECK_THROWS_AS(parallel::OuterOptimizer(context, {3}, {.momentum = 1}), Error);
}
