// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/assembly.hpp>
// Covers: <tutti/federate/delivery.hpp>
#include "support/catch.hpp"

#include <tutti/federate/assembly.hpp>
#include <tutti/federate/delivery.hpp>
#include <tutti/testing/simulated_network.hpp>

#include <limits>

using namespace tutti;
using namespace tutti::federate;

namespace {
std::vector<std::byte> bytes_of(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 256);
  return bytes;
}
}  // namespace

TEST_CASE("a tensor arrives whole through losses, damage, repetition and any order") {
  testing::Dice dice(3);
  for (std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{100}, std::size_t{1001}}) {
    std::vector<std::byte> const sent = bytes_of(count);
    Assembly assembly(5, static_cast<std::int64_t>(count), hash_bytes(sent), 8, 3);
    std::vector<Ask> under_way;
    int turns = 0;
    while (!assembly.complete()) {
      REQUIRE(++turns < 20000);
      while (auto const ask = assembly.next()) under_way.push_back(*ask);
      REQUIRE(under_way.size() <= 3);
      if (dice.happens(0.1)) {  // the connection is lost
        under_way.clear();
        assembly.resume();
        continue;
      }
      auto const which = static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(under_way.size())));
      auto chunk = answer(under_way[which], sent, 8);
      REQUIRE(chunk.has_value());
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
      if (dice.happens(0.2)) chunk->checksum ^= 1;
      REQUIRE(assembly.arrive(*chunk));
      if (dice.happens(0.2)) REQUIRE(assembly.arrive(*chunk));
    }
    CHECK(assembly.intact());
    CHECK(assembly.take() == sent);
  }
}

TEST_CASE("a chunk that is no chunk of this tensor is not taken") {
  std::vector<std::byte> const sent = bytes_of(20);
  Assembly assembly(5, 20, hash_bytes(sent), 8, 3);
  std::span<std::byte const> const all = sent;
  CHECK(!assembly.arrive({6, 0, hash_bytes(all.first(8)), all.first(8)}));
  CHECK(!assembly.arrive({5, -8, hash_bytes(all.first(8)), all.first(8)}));
  CHECK(!assembly.arrive({5, 4, hash_bytes(all.first(8)), all.first(8)}));
  CHECK(!assembly.arrive({5, 24, hash_bytes(all.first(8)), all.first(8)}));
  CHECK(!assembly.arrive({5, 16, hash_bytes(all.first(8)), all.first(8)}));
  CHECK(!assembly.arrive({5, 0, hash_bytes(all.first(4)), all.first(4)}));
  CHECK(!assembly.complete());
}

TEST_CASE("bytes that are not there are not given") {
  std::vector<std::byte> const sent = bytes_of(20);
  CHECK(answer({1, 12, 8}, sent, 8).has_value());
  CHECK(!answer({1, 13, 8}, sent, 8).has_value());
  CHECK(!answer({1, -1, 8}, sent, 8).has_value());
  CHECK(!answer({1, 0, 0}, sent, 8).has_value());
  CHECK(!answer({1, 0, 9}, sent, 8).has_value());
  CHECK(!answer({1, std::numeric_limits<std::int64_t>::max(), 8}, sent, 8).has_value());
}

TEST_CASE("a contribution counts only if it is what was offered, and finite") {
  Facts facts;
  facts.parameters = 3;
  facts.batch = 2;
  facts.samples = 100;
  std::vector<float> values{3, 4, 0};
  auto const arrived = [&](std::uint64_t checksum) {
    auto const bytes = std::as_bytes(std::span(values));
    Assembly assembly(1, 12, checksum, 64, 1);
    assembly.arrive({1, 0, hash_bytes(bytes), bytes});
    REQUIRE(assembly.complete());
    return assembly;
  };
  Offer const offer{1, 0, 10, 12, 0, 1, 2};
  auto const good = examine(9, offer, arrived(hash_bytes(std::as_bytes(std::span(values)))), facts);
  REQUIRE(std::holds_alternative<Contribution>(good));
  CHECK(std::get<Contribution>(good).norm == 5);
  CHECK(std::get<Contribution>(good).steps == 5);
  CHECK(std::get<std::string>(examine(9, offer, arrived(1), facts)) == "it is not what its checksum says");
  for (float const wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    values[1] = wrong;
    auto const bad = examine(9, offer, arrived(hash_bytes(std::as_bytes(std::span(values)))), facts);
    CHECK(std::get<std::string>(bad) == "values of it are not finite");
  }

  CHECK(fits_lease(offer, 10, 0, facts));
  auto const but = [&](auto change) {
    Offer other = offer;
    change(other);
    return fits_lease(other, 10, 0, facts);
  };
  CHECK(!but([](Offer& o) { o.samples = 12; }));
  CHECK(!but([](Offer& o) { o.samples = 9; }));
  CHECK(!but([](Offer& o) { o.samples = 0; }));
  CHECK(!but([](Offer& o) { o.samples = -2; }));
  CHECK(!but([](Offer& o) { o.bytes = 13; }));
  CHECK(!but([](Offer& o) { o.round = 1; }));
  CHECK(!but([](Offer& o) { o.round = -1; }));
  CHECK(!but([](Offer& o) { o.loss = std::numeric_limits<double>::quiet_NaN(); }));
  CHECK(!but([](Offer& o) { o.seconds = std::numeric_limits<double>::infinity(); }));
  CHECK(!but([](Offer& o) { o.seconds = -1; }));
}
