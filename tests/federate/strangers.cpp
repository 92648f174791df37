// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/shepherd_streaming.hpp>
// Covers: <tutti/federate/worker_streaming.hpp>
#include "federate/federation.hpp"

#include "support/catch.hpp"
#include "support/fuzz.hpp"

#include <chrono>

using namespace federation;

namespace {

/// Any message, of numbers that are usual, extreme or by chance; `bytes` is what a chunk has.
Message anything(Dice& dice, std::vector<std::byte> const& bytes) {
  auto const number = [&]() -> std::int64_t {
    std::int64_t const usual[] = {0, 1, 2, 3, 64, 148, -1, INT64_MIN, INT64_MAX, std::int64_t{1} << 40};
    return dice.happens(0.8) ? usual[dice.below(10)] : static_cast<std::int64_t>(dice.next());
  };
  auto const word = [&] {
    return (dice.happens(0.3) ? of_move : 0) | (dice.happens(0.3) ? (std::uint64_t{1} << 32) + 1 : 0) |
           static_cast<std::uint64_t>(number());
  };
  auto const real = [&] {
    double const usual[] = {0, 1, -1, 1e300, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()};
    return usual[dice.below(6)];
  };
  switch (dice.below(12)) {
    case 0: return Hello{protocol_version, word(), word(), word(), dice.happens(0.5), real(), "x", word(), number()};
    case 1: return Ready{real(), number()};
    case 2: return Heartbeat{static_cast<WorkerState>(dice.below(worker_states)), number(), real(), number(), number()};
    case 3: return Ask{word(), number(), number()};
    case 4: return Offer{word(), number(), number(), number(), word(), real(), real(), dice.happens(0.5)};
    case 5: return dice.happens(0.1) ? Message(Leave{"enough"}) : Message(Ready{1, number()});
    case 6: return Assign{word(), number(), {{number(), number()}}, word(), number(), number()};
    case 7: return Moved{number(), dice.happens(0.5), number(), word()};
    case 8: return Settled{word(), dice.happens(0.5), "so"};
    case 9: return dice.happens(0.1) ? Message(Bye{dice.happens(0.5), false, "so"}) : Message(Heartbeat{});
    case 10: return Chunk{word(), number(), tutti::hash_bytes(bytes), bytes};
    default: return Chunk{word(), 0, word(), bytes};
  }
}

}  // namespace

TEST_CASE("whatever a worker or a shepherd says, the other one survives it", "[fuzz]") {
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(tutti::test::fuzz_seconds(0));
  std::uint64_t seed = tutti::test::fuzz_seed(1);
  for (std::uint64_t turn = 0; turn < 200 || std::chrono::steady_clock::now() < end; ++turn, ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    SimulatedClock clock;
    Network network(clock, dice);
    Facts facts = facts_of(160);
    if (dice.happens(0.7)) facts.fragments = fragments_of(2);
    std::vector<std::byte> bytes(dice.happens(0.5) ? 64 : 8);
    Policy policy = policy_of(1);
    Shepherd shepherd(clock, network, dice, facts, policy);
    auto const stranger = network.add({[](auto) {}, [](auto) {}, [](auto, Parcel const&) {}});
    for (int attempt = 0; attempt < 6; ++attempt) {
      auto const connection = network.connect(stranger, shepherd.node());
      clock.run(clock.now() + seconds(1), [] { return false; });
      Hello hello;
      hello.worker = 5;
      network.send(connection, stranger, Parcel(hello));
      network.send(connection, stranger, Parcel(Ready{1, dice.happens(0.5) ? 0 : -1}));
      for (int k = 0; k < 20; ++k) {
        network.send(connection, stranger, Parcel(anything(dice, bytes)));
        if (dice.happens(0.3)) clock.run(clock.now() + seconds(0.5), [] { return false; });
      }
      network.cut(connection);
    }
    REQUIRE(shepherd.alive());
    Worker worker(clock, network, shepherd.node(), 9, 5);
    REQUIRE(clock.run(clock.now() + seconds(3600), [&] { return shepherd.finished() || !shepherd.alive(); }));
    REQUIRE(shepherd.finished());

    // A worker whose shepherd says anything behind a proper welcome, and sometimes parameters.
    Network::Connection connection = 0;
    auto const liar = network.add({[&](auto c) { connection = c; }, [](auto) {}, [](auto, Parcel const&) {}});
    Worker honest(clock, network, liar, 3, 5);
    for (int attempt = 0; attempt < 6 && honest.alive(); ++attempt) {
      connection = 0;
      if (!clock.run(clock.now() + seconds(60), [&] { return connection != 0 || !honest.alive(); })) break;
      network.send(connection, liar, Parcel(welcome_of(facts, policy)));
      clock.run(clock.now() + seconds(1), [] { return false; });
      std::vector<std::byte> const parameters(static_cast<std::size_t>(facts.parameter_bytes()));
      network.send(connection, liar,
                   Parcel(Moved{0, true, facts.parameter_bytes(), tutti::hash_bytes(parameters)}));
      for (std::int64_t at = 0; at < facts.parameter_bytes(); at += 64) {
        auto const part =
            std::span(parameters)
                .subspan(static_cast<std::size_t>(at),
                         static_cast<std::size_t>(std::min<std::int64_t>(64, facts.parameter_bytes() - at)));
        network.send(connection, liar, Parcel(Chunk{0, at, tutti::hash_bytes(part), part}));
      }
      network.send(connection, liar, Parcel(Assign{1, 0, {{0, 4}}, 0, 0, 160}));
      for (int k = 0; k < 20; ++k) {
        network.send(connection, liar, Parcel(anything(dice, bytes)));
        if (dice.happens(0.3)) clock.run(clock.now() + seconds(0.5), [] { return false; });
      }
      network.cut(connection);
    }
    honest.kill();
  }
}
