// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/shepherd_core.hpp>
// Covers: <tutti/federate/shepherd_actions.hpp>
// Covers: <tutti/federate/worker_core.hpp>
// Covers: <tutti/federate/worker_actions.hpp>
// Covers: <tutti/federate/member.hpp>
// Covers: <tutti/federate/round.hpp>
// Covers: <tutti/federate/message.hpp>
// Covers: <tutti/testing/simulated_network.hpp>
// Covers: <tutti/federate/shepherd_requests.hpp>
#include "federate/federation.hpp"

#include "support/catch.hpp"

using namespace federation;

namespace {

struct Outcome {
  std::string wrong;
  std::int64_t rounds = 0, late = 0, restarts = 0;
  std::map<WorkerEvent, int> events;
  double seconds = 0;
};

/// One run under everything that can go wrong, as the seed decides. `streams`: with fragments, of which it decides too.
Outcome schedule(std::uint64_t seed, bool streams = false) {
  Dice dice(seed);
  SimulatedClock clock;
  Network network(clock, dice);
  network.set_delays(seconds(0.001), seconds(dice.happens(0.3) ? 2.0 : 0.1));
  std::int64_t const workers = 1 + dice.below(5);
  Policy policy = policy_of(workers);
  policy.norm_limit = 1000;  // what these functions learn from a few samples may be any part of what they do from many
  policy.staleness = dice.below(3);
  if (dice.happens(0.3)) policy.quorum = dice.uniform(0.1, 1);
  if (dice.happens(0.3)) policy.grace = dice.uniform(0.1, 10);
  Facts facts = facts_of(2 * policy.inner_steps * workers * (6 + dice.below(10)));
  if (streams) {
    facts.fragments = fragments_of(2 + dice.below(4));
    facts.bits = static_cast<tutti::parallel::OuterBits>(dice.below(4));
  }
  Shepherd shepherd(clock, network, dice, facts, policy);
  std::vector<std::unique_ptr<Worker>> all;
  auto const join = [&](Kind kind) {
    all.push_back(std::make_unique<Worker>(clock, network, shepherd.node(), 1000 + all.size(), dice.uniform(0.5, 8),
                                           kind, dice.happens(0.5)));
  };
  auto const some = [&]() -> Worker& {
    return *all[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(all.size())))];
  };
  for (std::int64_t i = 0; i < workers; ++i) join(Kind::honest);
  // A run without faults takes a minute or more of simulated time; they come within it.
  for (std::int64_t faults = dice.below(12); faults > 0; --faults)
    clock.at(seconds(dice.uniform(0, 90)), [&, what = dice.below(11)] {
      if (shepherd.finished()) return;
      switch (what) {
        case 0: some().kill(); break;
        case 1: join(Kind::honest); break;
        case 2: some().drain(); break;
        case 3:
        case 4: shepherd.crash_after(1 + dice.below(40)); break;
        case 5: network.partition(some().node(), clock.now() + seconds(dice.uniform(0.1, 40))); break;
        case 6:
          for (auto id : network.connections())
            if (dice.happens(0.5)) network.cut(id);
          break;
        case 7: some().slow_down(dice.uniform(1, 6)); break;
        case 8: join(Kind::sends_nan); break;
        case 9: shepherd.drain(some().id()); break;
        case 10:
          shepherd.pause(true);
          clock.in(seconds(dice.uniform(0.1, 40)), [&] { shepherd.pause(false); });
          break;
      }
    });
  // Somebody is always there to do the rest.
  std::function<void()> relief = [&] {
    std::int64_t honest = 0;
    for (auto const& worker : all) honest += worker->alive() && worker->kind() == Kind::honest ? 1 : 0;
    while (honest < (shepherd.reports.empty() ? workers : 1)) join(Kind::honest), ++honest;
    clock.in(seconds(5), relief);
  };
  clock.at(seconds(91), relief);
  bool const done = clock.run(seconds(4 * 3600), [&] {
    return shepherd.finished() &&
           std::none_of(all.begin(), all.end(), [](auto const& worker) { return worker->alive(); });
  });
  Outcome outcome;
  outcome.events = shepherd.events;
  outcome.restarts = shepherd.restarts;
  outcome.rounds = static_cast<std::int64_t>(shepherd.reports.size());
  for (RoundReport const& report : shepherd.reports) outcome.late += report.late;
  outcome.seconds = in_seconds(clock.now());
  if (!done) {
    std::ostringstream told;
    told << "it hangs: ";
    if (shepherd.alive()) {
      ShepherdCore const& core = shepherd.core();
      told << "round " << core.round() << ", " << core.ledger().committed() << " + " << core.ledger().leased() << " of "
           << core.ledger().samples() << " samples, " << core.progress().delivered << " delivered, "
           << core.progress().working << " working";
      for (auto const& [id, member] : core.members())
        told << "; worker " << id << (member.peer ? " here" : " away") << (member.ready ? " ready" : "")
             << (member.leaving ? " leaving" : "") << " lease " << member.lease << ", " << member.next << " done "
             << member.done << (member.synchronised ? " synchronised" : "");
    }
    for (auto const& worker : all)
      if (worker->alive()) told << "; one is " << name(worker->core().state());
    outcome.wrong = told.str();
  } else outcome.wrong = shepherd.broken + wrong_with(shepherd.disk(), facts);
  for (auto const& worker : all)
    if (worker->kind() == Kind::honest && worker->core().failed())
      outcome.wrong += "an honest worker failed: " + worker->core().reason() + ". ";
  return outcome;
}

}  // namespace

TEST_CASE("1,000 schedules of faults: no hang, every sample once, every contribution whole") {
  std::int64_t rounds = 0, late = 0, restarts = 0;
  std::map<WorkerEvent, int> events;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    Outcome const outcome = schedule(seed);
    REQUIRE(outcome.wrong == "");
    rounds += outcome.rounds;
    late += outcome.late;
    restarts += outcome.restarts;
    for (auto const& [event, count] : outcome.events) events[event] += count;
  }
  std::printf("rounds %lld, late contributions %lld, restarts of the shepherd %lld\n", static_cast<long long>(rounds),
              static_cast<long long>(late), static_cast<long long>(restarts));
  print(events);
  // The schedules are worth something only where the faults came true.
  CHECK(late > 100);
  CHECK(restarts > 500);
  CHECK(events[WorkerEvent::lost] > 300);
  CHECK(events[WorkerEvent::left] > 100);
  CHECK(events[WorkerEvent::refused] > 200);
  CHECK(events[WorkerEvent::expelled] > 100);
  CHECK(events[WorkerEvent::late] > 50);
}

TEST_CASE("1,000 schedules of faults with fragments at times of their own: no hang, every sample once") {
  std::int64_t rounds = 0, restarts = 0;
  std::map<WorkerEvent, int> events;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    Outcome const outcome = schedule(seed, true);
    REQUIRE(outcome.wrong == "");
    rounds += outcome.rounds;
    restarts += outcome.restarts;
    for (auto const& [event, count] : outcome.events) events[event] += count;
  }
  std::printf("rounds %lld, restarts of the shepherd %lld\n", static_cast<long long>(rounds),
              static_cast<long long>(restarts));
  print(events);
  CHECK(restarts > 500);
  CHECK(events[WorkerEvent::lost] > 300);
  CHECK(events[WorkerEvent::late] > 50);
}

TEST_CASE("many more schedules of faults", "[.exhaustive]") {
  for (std::uint64_t seed = 1001; seed <= 60000; ++seed) {
    INFO("seed " << seed);
    REQUIRE(schedule(seed).wrong == "");
    REQUIRE(schedule(seed, true).wrong == "");
  }
}

namespace {

/// A run without faults: workers of these speeds, in steps a second.
struct Calm {
  SimulatedClock clock;
  Dice dice;
  Network network{clock, dice};
  Facts facts;
  Shepherd shepherd;
  std::vector<std::unique_ptr<Worker>> workers;

  Calm(std::vector<double> const& speeds, Policy const& policy, std::int64_t rounds, bool know_speeds = false,
       std::vector<Kind> kinds = {})
      : Calm(speeds, policy, facts_of(2 * policy.inner_steps * static_cast<std::int64_t>(speeds.size()) * rounds), 5,
             know_speeds, std::move(kinds)) {}
  Calm(std::vector<double> const& speeds, Policy const& policy, Facts const& what, std::uint64_t seed, bool know_speeds,
       std::vector<Kind> kinds = {})
      : dice(seed), facts(what), shepherd(clock, network, dice, facts, policy) {
    kinds.resize(speeds.size());
    for (std::size_t i = 0; i < speeds.size(); ++i)
      workers.push_back(
          std::make_unique<Worker>(clock, network, shepherd.node(), 1 + i, speeds[i], kinds[i], know_speeds));
  }
  bool run() {
    return clock.run(seconds(86400), [&] { return shepherd.finished(); });
  }
};

}  // namespace

TEST_CASE("with fragments, a calm run is that of the paper, and nobody waits for what is on its way") {
  std::int64_t const count = 3, rounds = 14;
  std::size_t const workers = 3;
  Policy policy = policy_of(3);
  policy.inner_steps = 30;
  Dice dice(8);
  SimulatedClock clock;
  Network network(clock, dice);
  network.set_delays(seconds(0.2), seconds(0.3));  // a chunk of 64 bytes takes half a second there and back
  Facts facts = facts_of(2 * 10 * 3 * rounds);
  facts.fragments = fragments_of(count);
  facts.mix = 0.25;
  Shepherd shepherd(clock, network, dice, facts, policy);
  std::vector<std::unique_ptr<Worker>> all;
  for (std::size_t i = 0; i < workers; ++i)
    all.push_back(std::make_unique<Worker>(clock, network, shepherd.node(), 1 + i, 5, Kind::honest, true));
  double began = 0;
  REQUIRE(clock.run(seconds(3600), [&] {
    if (began == 0 && all[0]->core().state() == WorkerState::training) began = in_seconds(clock.now());
    return shepherd.finished();
  }));
  CHECK(wrong_with(shepherd.disk(), facts) == "");
  CHECK(shepherd.reports.size() == static_cast<std::size_t>(rounds));

  // The same by hand: local steps, the fragment of the round before is merged, the round's own one is averaged.
  Outer outer;
  outer.fragments = facts.fragments;
  std::vector<std::vector<float>> local(workers, outer.at);
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<float> gradient(static_cast<std::size_t>(facts.size_of(round)));
    auto const first = static_cast<std::size_t>(facts.first_of(round));
    for (std::size_t w = 0; w < workers; ++w) {
      for (std::int64_t k = 0; k < 20; ++k) learn(local[w], (round * 3 + static_cast<std::int64_t>(w)) * 20 + k);
      if (round > 0)
        for (std::int64_t k = 0; k < facts.size_of(round - 1); ++k) {
          auto const i = static_cast<std::size_t>(facts.first_of(round - 1) + k);
          local[w][i] = 0.25f * local[w][i] + 0.75f * outer.at[i];
        }
      for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] += (outer.at[first + k] - local[w][first + k]) / 3;
    }
    outer.step(facts.fragment_of(round), gradient);
  }
  double off = 0;
  std::vector<float> const& at = shepherd.disk().snapshots.at(rounds).first;
  for (std::size_t i = 0; i < at.size(); ++i)
    off = std::max(off, std::abs(static_cast<double>(at[i]) - static_cast<double>(outer.at[i])));
  double const took = in_seconds(clock.now()) - began, busy = static_cast<double>(10 * rounds) / 5;
  std::printf("off by %.1e, %.3f of the time is training\n", off, busy / took);
  CHECK(off < 1e-5);
  CHECK(busy > 0.9 * took);

  // All at once the same network costs more.
  Facts whole = facts;
  whole.fragments.clear();
  Policy short_rounds = policy;
  short_rounds.inner_steps = 10;
  SimulatedClock other_clock;
  Network other_network(other_clock, dice);
  other_network.set_delays(seconds(0.2), seconds(0.3));
  Shepherd other(other_clock, other_network, dice, whole, short_rounds);
  std::vector<std::unique_ptr<Worker>> others;
  for (std::size_t i = 0; i < workers; ++i)
    others.push_back(std::make_unique<Worker>(other_clock, other_network, other.node(), 1 + i, 5, Kind::honest, true));
  REQUIRE(other_clock.run(seconds(3600), [&] { return other.finished(); }));
  CHECK(busy < 0.8 * in_seconds(other_clock.now()));
}

TEST_CASE("with fragments, uneven workers take as many steps as they can, and who joins is given the next round") {
  Policy policy = policy_of(3);
  policy.inner_steps = 60;
  Facts facts = facts_of(2 * 30 * 3 * 30);
  facts.fragments = fragments_of(2);
  facts.bits = tutti::parallel::OuterBits::int4;
  Calm calm({4.0, 4.0, 2.0}, policy, facts, 9, true);
  Shepherd& shepherd = calm.shepherd;
  REQUIRE(calm.clock.run(seconds(7200), [&] { return shepherd.reports.size() == 20; }));
  for (RoundReport const& report : shepherd.reports) CHECK(report.workers == 3);
  double const got = static_cast<double>(shepherd.reports.back().committed) / in_seconds(calm.clock.now());
  std::printf("%.3f of the ideal throughput\n", got / (10.0 * static_cast<double>(facts.batch)));
  CHECK(got > 0.9 * 10 * static_cast<double>(facts.batch));
  Worker newcomer(calm.clock, calm.network, shepherd.node(), 77, 4, Kind::honest, true);
  REQUIRE(calm.clock.run(seconds(7200), [&] { return shepherd.reports.size() == 23; }));
  CHECK(shepherd.reports.back().workers == 4);
  REQUIRE(calm.clock.run(seconds(7200), [&] { return shepherd.finished(); }));
  CHECK(shepherd.events[WorkerEvent::late] == 0);
  CHECK(wrong_with(shepherd.disk(), facts) == "");
}

TEST_CASE("with fragments, who leaves delivers what it has done, and is not kept waiting for more") {
  Policy policy = policy_of(2);
  policy.inner_steps = 100;
  Facts facts = facts_of(2 * 50 * 2 * 6);
  facts.fragments = fragments_of(2);
  Calm calm({10, 10}, policy, facts, 10, true);
  SimulatedClock& clock = calm.clock;
  Shepherd& shepherd = calm.shepherd;
  Worker& first = *calm.workers[0];
  REQUIRE(clock.run(seconds(600), [&] { return shepherd.reports.size() == 1; }));
  clock.run(clock.now() + seconds(2), [] { return false; });
  REQUIRE(first.core().state() == WorkerState::training);
  first.drain();
  CHECK(clock.run(clock.now() + seconds(3), [&] { return first.core().ended(); }));
  CHECK(!first.core().failed());
  REQUIRE(clock.run(seconds(7200), [&] { return shepherd.finished(); }));
  CHECK(shepherd.events[WorkerEvent::left] == 1);
  CHECK(shepherd.reports[1].workers == 2);
  CHECK(shepherd.reports[1].samples < 200);
  CHECK(wrong_with(shepherd.disk(), facts) == "");
}

TEST_CASE("a worker of half the speed costs at most a tenth of the ideal throughput") {
  Policy policy = policy_of(4);
  policy.inner_steps = 30;
  for (std::vector<double> const& speeds :
       {std::vector{4.0, 4.0, 4.0, 2.0}, std::vector{4.0, 4.0, 4.0, 4.0}, std::vector{8.0, 4.0, 2.0, 2.0}}) {
    Calm calm(speeds, policy, 20);
    REQUIRE(calm.run());
    double ideal = 0;
    for (double const speed : speeds) ideal += speed * static_cast<double>(calm.facts.batch);
    double const got = static_cast<double>(calm.facts.samples) / in_seconds(calm.clock.now());
    std::printf("%.3f of the ideal throughput\n", got / ideal);
    CHECK(got > 0.9 * ideal);
    CHECK(wrong_with(calm.shepherd.disk(), calm.facts) == "");
  }
}

TEST_CASE("without shares by speed the slow worker would cost more than that") {
  Policy policy = policy_of(4);
  policy.inner_steps = 30;
  policy.slowest = policy.fastest = 1;
  Calm calm({4, 4, 4, 2}, policy, 20);
  REQUIRE(calm.run());
  CHECK(static_cast<double>(calm.facts.samples) / in_seconds(calm.clock.now()) < 0.9 * 28);
}

TEST_CASE("the same seed gives the same run, to the last record") {
  auto const log = [] {
    Calm calm({3, 2, 1}, policy_of(3), 5);
    REQUIRE(calm.run());
    return calm.shepherd.disk().log;
  };
  CHECK(log() == log());
}

TEST_CASE("a contribution that is far too long is refused, its samples go to others, its worker is sent away") {
  Calm calm({3, 3, 3, 3}, policy_of(4), 8, true, {Kind::honest, Kind::honest, Kind::sends_too_much});
  REQUIRE(calm.run());
  CHECK(calm.shepherd.events[WorkerEvent::refused] == 3);
  CHECK(calm.shepherd.events[WorkerEvent::expelled] == 1);
  CHECK(calm.workers[2]->core().failed());
  CHECK(wrong_with(calm.shepherd.disk(), calm.facts) == "");
}

TEST_CASE("who joins in the middle of a round works on it, and has the parameters of the last outer step") {
  Policy policy = policy_of(2);
  policy.inner_steps = 100;
  Calm calm({10, 10}, policy, 3);
  // A round takes 10 s; 3 s into the second one there is time for more than half of it.
  bool const second = calm.clock.run(seconds(3600), [&] { return calm.shepherd.core().round() == 1; });
  REQUIRE(second);
  calm.clock.run(calm.clock.now() + seconds(3), [] { return false; });
  calm.workers.push_back(std::make_unique<Worker>(calm.clock, calm.network, calm.shepherd.node(), 77, 10));
  REQUIRE(calm.clock.run(seconds(3600), [&] { return calm.shepherd.core().round() == 2; }));
  CHECK(calm.shepherd.reports[1].workers == 3);
  CHECK(calm.shepherd.reports[1].late == 0);
  REQUIRE(calm.run());
  CHECK(wrong_with(calm.shepherd.disk(), calm.facts) == "");
}

TEST_CASE("who leaves delivers what it has done so far, and the rest of its samples go to others") {
  Policy policy = policy_of(2);
  policy.inner_steps = 100;
  Calm calm({10, 10}, policy, 2, true);
  calm.clock.run(seconds(4), [] { return false; });
  REQUIRE(calm.workers[0]->core().state() == WorkerState::training);
  calm.workers[0]->drain();
  CHECK(calm.workers[0]->core().state() == WorkerState::draining);
  CHECK(calm.clock.run(seconds(6), [&] { return calm.workers[0]->core().ended(); }));
  CHECK(!calm.workers[0]->core().failed());
  REQUIRE(calm.run());
  CHECK(calm.shepherd.events[WorkerEvent::left] == 1);
  CHECK(calm.shepherd.reports[0].workers == 2);
  CHECK(calm.shepherd.reports[0].samples < 400);
  CHECK(wrong_with(calm.shepherd.disk(), calm.facts) == "");
}

TEST_CASE("a worker that its shepherd drains delivers the whole of what it has, and gets nothing more") {
  Dice dice(6);
  SimulatedClock clock;
  Network network(clock, dice);
  Policy const policy = policy_of(2);
  Facts const facts = facts_of(2 * policy.inner_steps * 2 * 8);
  Shepherd shepherd(clock, network, dice, facts, policy);
  Worker first(clock, network, shepherd.node(), 1, 2), second(clock, network, shepherd.node(), 2, 2);
  clock.run(seconds(600), [&] { return shepherd.reports.size() >= 2; });
  shepherd.drain(1);
  shepherd.drain(99);  // a stranger
  REQUIRE(clock.run(seconds(600), [&] { return !first.alive(); }));
  CHECK(!first.core().failed());
  CHECK(first.core().reason() == "all that it had is delivered");
  CHECK(shepherd.events[WorkerEvent::left] == 1);
  REQUIRE(clock.run(seconds(3600), [&] { return shepherd.finished(); }));
  CHECK(wrong_with(shepherd.disk(), facts) == "");
  CHECK(second.trained > first.trained);
}

TEST_CASE("a shepherd that pauses merges what is under way and gives nobody work until it goes on") {
  Dice dice(7);
  SimulatedClock clock;
  Network network(clock, dice);
  Policy const policy = policy_of(2);
  Facts const facts = facts_of(2 * policy.inner_steps * 2 * 8);
  Shepherd shepherd(clock, network, dice, facts, policy);
  Worker first(clock, network, shepherd.node(), 1, 2), second(clock, network, shepherd.node(), 2, 2);
  clock.run(seconds(600), [&] { return shepherd.reports.size() >= 2; });
  shepherd.pause(true);
  std::size_t const before = shepherd.reports.size();
  clock.run(seconds(300), [] { return false; });
  CHECK(shepherd.reports.size() <= before + 1);
  RoundProgress const progress = shepherd.core().progress();
  CHECK((progress.working == 0 && progress.delivered == 0));
  CHECK((first.alive() && second.alive()));
  shepherd.pause(false);
  REQUIRE(clock.run(seconds(3600), [&] { return shepherd.finished(); }));
  CHECK(wrong_with(shepherd.disk(), facts) == "");
}

TEST_CASE("what is said out of turn ends the connection, not the shepherd") {
  SimulatedClock clock;
  Dice dice(3);
  Network network(clock, dice);
  Shepherd shepherd(clock, network, dice, facts_of(80), policy_of(1));
  std::vector<Message> heard;
  int ended = 0;
  auto const stranger =
      network.add({[](auto) {}, [&](auto) { ++ended; }, [&](auto, Parcel const& p) { heard.push_back(p.read()); }});
  Hello greeting;
  greeting.worker = 5;
  Hello old = greeting, nobody, foreign = greeting;
  old.version = 99;
  foreign.run = 1;
  std::vector<std::vector<Message>> const attempts{{Ready{1}},
                                                   {old},
                                                   {nobody},
                                                   {foreign},
                                                   {greeting, greeting},
                                                   {greeting, Welcome{}},
                                                   {greeting, Ask{0, -1, 8}},
                                                   {greeting, Ask{0, 4 * dimensions, 8}},
                                                   {greeting, Ask{0, 0, 1000}}};
  for (auto const& attempt : attempts) {
    heard.clear();
    int const before = ended;
    auto const connection = network.connect(stranger, shepherd.node());
    clock.run(clock.now() + seconds(1), [] { return false; });
    for (Message const& message : attempt) network.send(connection, stranger, Parcel(message));
    clock.run(clock.now() + seconds(1), [] { return false; });
    CHECK(ended == before + 1);
    REQUIRE(!heard.empty());
    REQUIRE(std::holds_alternative<Bye>(heard.back()));
    CHECK(std::get<Bye>(heard.back()).failed);
  }
  REQUIRE(shepherd.alive());
  Worker worker(clock, network, shepherd.node(), 9, 5);
  CHECK(clock.run(seconds(3600), [&] { return shepherd.finished(); }));
}
