// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/shepherd_lending.hpp>
#include "federate/relays.hpp"

#include "support/catch.hpp"

using namespace federation;

namespace {

/// A shepherd, relays, and workers behind either.
struct Tree {
  SimulatedClock clock;
  Dice dice;
  Network network{clock, dice};
  Facts facts;
  Shepherd shepherd;
  Results results;
  std::vector<std::unique_ptr<Relay>> relays;
  std::vector<std::unique_ptr<Worker>> workers;

  Tree(Facts const& what, Policy const& policy, std::uint64_t seed)
      : dice(seed), facts(what), shepherd(clock, network, dice, facts, policy) {}
  Relay& relay(std::vector<Network::Node> above) {
    relays.push_back(std::make_unique<Relay>(clock, network, std::move(above), 500 + relays.size(), results));
    return *relays.back();
  }
  Worker& worker(std::vector<Network::Node> above, double speed, Kind kind = Kind::honest) {
    workers.push_back(
        std::make_unique<Worker>(clock, network, std::move(above), 1000 + workers.size(), speed, kind, true));
    return *workers.back();
  }
  bool over() const {
    auto const lives = [](auto const& one) { return one->alive(); };
    return shepherd.finished() && std::none_of(workers.begin(), workers.end(), lives) &&
           std::none_of(relays.begin(), relays.end(), lives);
  }
  std::string wrong() const {
    std::string wrong = shepherd.broken;
    for (auto const& relay : relays) {
      wrong += relay->broken;
      if (relay->core().failed() && relay->core().reason() != Relay::deserted)
        wrong += "a relay failed: " + relay->core().reason() + ". ";
    }
    for (auto const& worker : workers)
      if (worker->kind() == Kind::honest && worker->core().failed())
        wrong += "an honest worker failed: " + worker->core().reason() + ". ";
    return wrong + wrong_with(shepherd.disk(), facts, results);
  }
};

struct Outcome {
  std::string wrong;
  std::int64_t leases = 0, rounds = 0, partly = 0;
  std::map<WorkerEvent, int> events;
};

/// Two relays, sometimes one behind the other, and every fault that the seed decides.
Outcome schedule(std::uint64_t seed) {
  Dice plan(seed * 7919);
  Policy policy = policy_of(2);
  policy.norm_limit = 1000;
  policy.staleness = plan.below(3);
  if (plan.happens(0.3)) policy.grace = plan.uniform(0.1, 10);
  Tree tree(facts_of(2 * policy.inner_steps * 6 * (5 + plan.below(8))), policy, seed);
  tree.network.set_delays(seconds(0.001), seconds(plan.happens(0.3) ? 2.0 : 0.1));
  auto const root = tree.shepherd.node();
  auto const add_relay = [&] {
    std::vector above{root};
    if (!tree.relays.empty() && plan.happens(0.3)) above.insert(above.begin(), tree.relays.front()->node());
    tree.relay(above);
  };
  auto const add_worker = [&](Kind kind) {
    std::vector above{root};
    if (plan.happens(0.8))
      above.insert(above.begin(),
                   tree.relays[static_cast<std::size_t>(plan.below(std::int64_t(tree.relays.size())))]->node());
    tree.worker(above, plan.uniform(0.5, 8), kind);
  };
  add_relay();
  add_relay();
  for (int i = 0; i < 5; ++i) add_worker(Kind::honest);
  auto const some = [&](auto& all) -> auto& {
    return *all[static_cast<std::size_t>(plan.below(static_cast<std::int64_t>(all.size())))];
  };
  for (std::int64_t faults = plan.below(10); faults > 0; --faults)
    tree.clock.at(seconds(plan.uniform(0, 90)), [&, what = plan.below(11)] {
      if (tree.shepherd.finished()) return;
      switch (what) {
        case 0: some(tree.workers).kill(); break;
        case 1: some(tree.relays).kill(); break;
        case 2: some(tree.workers).drain(); break;
        case 3: some(tree.relays).drain(); break;
        case 4: tree.shepherd.crash_after(1 + plan.below(40)); break;
        case 5:
          tree.network.partition(some(tree.workers).node(), tree.clock.now() + seconds(plan.uniform(0.1, 40)));
          break;
        case 6:
          tree.network.partition(some(tree.relays).node(), tree.clock.now() + seconds(plan.uniform(0.1, 40)));
          break;
        case 7:
          for (auto id : tree.network.connections())
            if (plan.happens(0.5)) tree.network.cut(id);
          break;
        case 8: add_worker(Kind::sends_nan); break;
        case 9: add_relay(); break;
        case 10: add_worker(Kind::honest); break;
      }
    });
  // Somebody is always there to do the rest, however many relays wait for workers.
  std::function<void()> relief = [&] {
    std::int64_t honest = 0;
    for (auto const& worker : tree.workers) honest += worker->alive() && worker->kind() == Kind::honest ? 1 : 0;
    for (; honest < 2; ++honest) tree.worker({root}, plan.uniform(0.5, 8));
    tree.clock.in(seconds(5), relief);
  };
  tree.clock.at(seconds(91), relief);
  bool const done = tree.clock.run(seconds(4 * 3600), [&] { return tree.over(); });
  Outcome outcome;
  outcome.events = tree.shepherd.events;
  for (auto const& relay : tree.relays)
    outcome.leases += relay->leases, outcome.rounds += relay->rounds, outcome.partly += relay->partly;
  if (done) {
    outcome.wrong = tree.wrong();
    return outcome;
  }
  std::ostringstream told;
  told << "it hangs: the shepherd is " << (tree.shepherd.finished() ? "done" : "at work");
  if (tree.shepherd.alive()) {
    ShepherdCore const& core = tree.shepherd.core();
    told << ", round " << core.round() << ", " << core.ledger().committed() << " + " << core.ledger().leased() << " of "
         << core.ledger().samples();
    for (auto const& [id, member] : core.members())
      told << "; " << id << (member.peer ? " here" : " away") << (member.ready ? " ready" : "") << " lease "
           << member.lease;
  }
  for (auto const& relay : tree.relays)
    if (relay->alive()) told << "; a relay is " << name(relay->core().state());
  for (auto const& worker : tree.workers)
    if (worker->alive()) told << "; worker " << worker->id() << " is " << name(worker->core().state());
  outcome.wrong = told.str();
  return outcome;
}

}  // namespace

TEST_CASE("workers behind a relay are one worker to its shepherd, and do as much as they would without it") {
  Policy policy = policy_of(2);
  policy.norm_limit = 0;
  Tree tree(facts_of(2 * policy.inner_steps * 4 * 20), policy, 3);
  Relay const& relay = tree.relay({tree.shepherd.node()});
  for (int i = 0; i < 3; ++i) tree.worker({relay.node()}, 2);
  tree.worker({tree.shepherd.node()}, 2);
  REQUIRE(tree.clock.run(seconds(86400), [&] { return tree.over(); }));
  CHECK(tree.wrong() == "");
  CHECK(relay.partly == 0);
  CHECK(relay.leases >= 18);
  CHECK(relay.rounds <= relay.leases + 3);  // a lease is a round, but where speeds were not known
  // A quarter of the samples each: the relay counts as three.
  double direct = tree.workers.back()->trained, behind = tree.workers.front()->trained;
  std::printf("seconds of training: %.1f behind the relay, %.1f beside it\n", behind, direct);
  CHECK(behind > 0.75 * direct);
  CHECK(behind < 1.25 * direct);
}

TEST_CASE("a tree of relays, each behind another") {
  Policy policy = policy_of(1);
  policy.norm_limit = 0;
  Tree tree(facts_of(2 * policy.inner_steps * 3 * 8), policy, 4);
  Relay const& first = tree.relay({tree.shepherd.node()});
  Relay const& second = tree.relay({first.node()});
  Relay const& third = tree.relay({second.node()});
  for (auto const node : {first.node(), second.node(), third.node()}) tree.worker({node}, 3);
  REQUIRE(tree.clock.run(seconds(86400), [&] { return tree.over(); }));
  CHECK(tree.wrong() == "");
  for (auto const& relay : tree.relays) CHECK(relay->leases > 4);
}

TEST_CASE("with fragments between shepherd and relay the relay's workers have whole parameters") {
  Policy policy = policy_of(2);
  Facts facts = facts_of(2 * policy.inner_steps * 4 * 12);
  facts.fragments = fragments_of(3);
  facts.bits = tutti::parallel::OuterBits::int8;
  Tree tree(facts, policy, 5);
  Relay const& relay = tree.relay({tree.shepherd.node()});
  for (int i = 0; i < 3; ++i) tree.worker({relay.node()}, 2);
  tree.worker({tree.shepherd.node()}, 2);
  REQUIRE(tree.clock.run(seconds(86400), [&] { return tree.over(); }));
  CHECK(tree.wrong() == "");
  CHECK(relay.leases > 20);
}

TEST_CASE(
    "1,000 schedules of faults in a tree: no hang, every sample once, every contribution what its relay's records "
    "say") {
  std::int64_t leases = 0, rounds = 0, partly = 0;
  std::map<WorkerEvent, int> events;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    Outcome const outcome = schedule(seed);
    REQUIRE(outcome.wrong == "");
    leases += outcome.leases, rounds += outcome.rounds, partly += outcome.partly;
    for (auto const& [event, count] : outcome.events) events[event] += count;
  }
  std::printf("leases of relays %lld, rounds of them %lld, leases that count in part %lld\n",
              static_cast<long long>(leases), static_cast<long long>(rounds), static_cast<long long>(partly));
  print(events);
  CHECK(leases > 3000);
  CHECK(rounds > 2000);
  CHECK(events[WorkerEvent::lost] > 200);
  CHECK(events[WorkerEvent::left] > 100);
}
