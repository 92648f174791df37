// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/replica.hpp>
// Covers: <tutti/federate/outer_moves.hpp>
#include "support/catch.hpp"

#include <tutti/federate/outer_moves.hpp>
#include <tutti/federate/replica.hpp>

#include <cmath>

using namespace tutti;
using namespace tutti::federate;

namespace {

struct Plain final : OuterModel {
  std::vector<float> at, velocity;
  std::vector<std::int64_t> sizes;
  std::span<float> parameters() override { return at; }
  std::span<float> momentum() override { return velocity; }
  void step(int fragment, std::span<float const> gradient) override {
    std::size_t first = 0;
    for (int f = 0; f < fragment; ++f) first += static_cast<std::size_t>(sizes[static_cast<std::size_t>(f)]);
    for (std::size_t i = 0; i < gradient.size(); ++i) at[first + i] -= 0.5f * gradient[i];
  }
};

Facts facts_of(parallel::OuterBits bits) {
  Facts facts;
  facts.parameters = 301;  // odd, of blocks of 128 that are not whole
  facts.fragments = {1, 171, 129};
  facts.bits = bits;
  return facts;
}
std::vector<float> wave(std::size_t count, float phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(0.37f * static_cast<float>(i) + phase);
  return values;
}

}  // namespace

TEST_CASE("who adds the encoded outer steps has the shepherd's parameters to the last bit, at any number of bits") {
  for (auto const bits : {parallel::OuterBits::float32, parallel::OuterBits::bfloat16, parallel::OuterBits::int8,
                          parallel::OuterBits::int4}) {
    INFO("bits " << static_cast<int>(bits));
    Facts const facts = facts_of(bits);
    validate([&] {
      Facts whole = facts;
      whole.samples = 1;
      return whole;
    }());
    Plain model;
    model.sizes = facts.fragments;
    model.at = wave(301, 0);
    std::vector<float> exact = model.at;
    Replica worker;
    CHECK(worker.version() == -1);
    worker.set(facts, std::as_bytes(std::span(model.at)), 0);
    OuterMoves moves;
    for (std::int64_t round = 0; round < 40; ++round) {
      std::vector<float> const gradient =
          wave(static_cast<std::size_t>(facts.size_of(round)), static_cast<float>(round));
      for (std::size_t i = 0; i < gradient.size(); ++i)
        exact[static_cast<std::size_t>(facts.first_of(round)) + i] -= 0.5f * gradient[i];
      moves.step(model, facts, round, gradient);
      auto const* move = moves.find(round + 1);
      REQUIRE(move != nullptr);
      CHECK(static_cast<std::int64_t>(move->bytes.size()) == facts.gradient_bytes(round));
      CHECK(move->checksum == hash_bytes(move->bytes));
      worker.move(facts, move->bytes);
    }
    CHECK(worker.version() == 40);
    CHECK(std::equal(model.at.begin(), model.at.end(), worker.agreed().begin()));
    CHECK(std::equal(model.at.begin(), model.at.end(), worker.local().begin()));  // nothing was trained
    // What rounding took comes later: it does not add up. A step is up to 0.5, a seventh of it a unit of four bits.
    float const unit = bits == parallel::OuterBits::float32 ? 1e-5f : bits == parallel::OuterBits::int4 ? 0.1f : 0.01f;
    for (std::size_t i = 0; i < exact.size(); ++i) REQUIRE(std::abs(exact[i] - model.at[i]) < unit);
    CHECK(moves.reach(40, 40));
    CHECK(moves.reach(28, 40));
    CHECK(!moves.reach(27, 40));  // four turns of each fragment are kept
    CHECK(!moves.reach(-1, 40));
    CHECK(!moves.reach(41, 40));
  }
}

TEST_CASE("a replica that trained keeps its share of a fragment, and offers how far it is from what all agree on") {
  Facts facts = facts_of(parallel::OuterBits::float32);
  facts.mix = 0.25;
  std::vector<float> const start = wave(301, 0);
  Replica worker;
  worker.set(facts, std::as_bytes(std::span(start)), 0);
  std::vector<float> trained = start;
  for (float& value : trained) value += 1;
  worker.train(trained);
  std::vector<float> gradient(171);
  parallel::decode(facts.bits, worker.gradient(facts, 1), gradient);
  for (float const value : gradient) REQUIRE(std::abs(value + 1) < 1e-6f);
  std::vector<float> const moved{2};
  std::vector<std::byte> bytes(4);
  parallel::encode(facts.bits, moved, bytes);
  worker.move(facts, bytes);
  CHECK(std::abs(worker.agreed()[0] - (start[0] + 2)) < 1e-6f);
  CHECK(std::abs(worker.local()[0] - (0.25f * (start[0] + 1) + 0.75f * (start[0] + 2))) < 1e-6f);
  CHECK(worker.local()[1] == trained[1]);
  worker.clear();
  CHECK(worker.version() == -1);
  REQUIRE_ERROR(worker.set(facts, std::span(bytes), 0), ErrorKind::internal, "another size");
}

TEST_CASE("whoever fetches the parameters of one round shares one copy of them") {
  OuterMoves moves;
  std::vector<float> parameters = wave(301, 1);
  auto const first = moves.whole(parameters, 3);
  parameters[0] = 7;
  CHECK(moves.whole(parameters, 3) == first);
  CHECK(moves.whole(parameters, 4)->parameters[0] == 7);
  CHECK(first->checksum == hash_bytes(std::as_bytes(std::span(first->parameters))));
}

TEST_CASE("fragments that are not the parameters are refused") {
  Facts facts = facts_of(parallel::OuterBits::int8);
  facts.samples = 1;
  for (std::vector<std::int64_t> const& wrong :
       {std::vector<std::int64_t>{300}, {0, 301}, {-1, 302}, {301, 1}, {std::int64_t{1} << 62, 5}}) {
    facts.fragments = wrong;
    REQUIRE_ERROR(validate(facts), ErrorKind::configuration, "fragments that are not the parameters");
  }
}
