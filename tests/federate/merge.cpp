// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/merge.hpp>
// Covers: <tutti/federate/pacing.hpp>
// Covers: <tutti/federate/shares.hpp>
// Covers: <tutti/federate/policy.hpp>
#include "support/catch.hpp"

#include <tutti/federate/merge.hpp>
#include <tutti/federate/shares.hpp>

#include <limits>

using namespace tutti;
using namespace tutti::federate;

namespace {
Contribution of(std::vector<float> gradient, std::int64_t steps = 4) {
  Contribution one;
  one.steps = steps;
  one.norm = finite_norm(gradient).value();
  one.gradient = std::move(gradient);
  return one;
}
}  // namespace

TEST_CASE("contributions are averaged by their weights") {
  std::vector<Contribution> const all{of({1, 2}), of({4, -1})};
  std::vector<float> average(2);
  federate::average(all, std::vector{1.0, 2.0}, 0, average);
  CHECK(average == std::vector<float>{3, 0});
  CHECK(weight_of(10, 8, 0, 0.5) == 80);
  CHECK(weight_of(10, 8, 2, 0.5) == 20);
  REQUIRE_ERROR(federate::average({}, {}, 0, average), ErrorKind::invalid_argument, "no contributions");
  REQUIRE_ERROR(federate::average(all, std::vector{0.0, 0.0}, 0, average), ErrorKind::invalid_argument,
                "no contributions");
}

TEST_CASE("a trimmed average leaves out the extremes of every value") {
  std::vector<Contribution> const all{of({1, -900}), of({2, 10}), of({900, 20}), of({3, 30})};
  std::vector<double> const weights{1, 1, 1, 1};
  std::vector<float> average(2);
  federate::average(all, weights, 0.25, average);
  CHECK(average == std::vector<float>{2.5f, 15});
  federate::average(all, weights, 0.2, average);  // less than one of four
  CHECK(average[0] == 226.5f);
}

TEST_CASE("a contribution is too long by the median, for the steps that it took") {
  std::vector<Contribution> all{of({1}), of({1.5f}), of({11})};
  CHECK(too_long(all, 10).empty());
  CHECK(too_long(all, 7) == std::vector<std::size_t>{2});
  CHECK(too_long(all, 0).empty());
  all[2].steps = 400;  // ten times as far in a hundred times the steps
  CHECK(too_long(all, 2).empty());
  all.pop_back();
  all[1] = of({1e6f});
  CHECK(too_long(all, 10).empty());  // which of the two?
  CHECK(!finite_norm(std::vector{1.0f, std::numeric_limits<float>::infinity()}));
  CHECK(finite_norm(std::vector{3e38f, 3e38f}).has_value());  // in double
  CHECK(finite_norm({}) == 0.0);
}

TEST_CASE("workers take steps by their speed, on average as many as asked for, within bounds") {
  Policy policy;
  policy.inner_steps = 40;
  auto const paced = [](double speed, double overhead = 0) {
    Pace pace;
    if (speed > 0) pace.measure(100, 100 / speed, 100 / speed + overhead);
    return pace;
  };
  std::vector<Pace> workers{paced(2), paced(6), paced(0)};  // of the third nothing is known
  Plan const plan(workers, policy);
  CHECK(plan.seconds() == 10);
  CHECK(plan.steps(workers[0]) == 20);
  CHECK(plan.steps(workers[1]) == 60);
  CHECK(plan.steps(workers[2]) == 40);
  workers = {paced(1), paced(100)};
  CHECK(Plan(workers, policy).steps(workers[0]) == 10);
  workers = {paced(1), paced(1), paced(1), paced(1), paced(1), paced(100)};
  CHECK(Plan(workers, policy).steps(workers[5]) == 160);
  // Both have the round's time, of which one loses 10 s.
  workers = {paced(2), paced(2, 10)};
  Plan const uneven(workers, policy);
  CHECK(uneven.seconds() == 25);
  CHECK(uneven.steps(workers[0]) == 50);
  CHECK(uneven.steps(workers[1]) == 30);
  CHECK(Plan({}, policy).seconds() == 0);
}

TEST_CASE("a speed follows what is measured, and nonsense does not count") {
  Pace pace;
  pace.measure(10, 5, 6);
  CHECK(pace.speed == 2);
  CHECK(pace.overhead == 1);
  pace.measure(10, 2.5, 2.5);
  CHECK(pace.speed == 3);
  CHECK(pace.overhead == 0.5);
  pace.measure(0, 1, 1);
  pace.measure(10, 0, 1);
  pace.measure(10, std::numeric_limits<double>::quiet_NaN(), 1);
  CHECK(pace.speed == 3);
}

TEST_CASE("at the end of a run all share what is left, and nobody has less than a batch") {
  Facts facts;
  facts.parameters = 1;
  facts.batch = 4;
  facts.samples = 4000;
  Policy policy;
  policy.inner_steps = 10;
  std::map<std::uint64_t, Member> members;
  for (std::uint64_t worker : {1u, 2u, 3u}) {
    members[worker].ready = true;
    members[worker].peer = worker;
    members[worker].pace.speed = worker == 3 ? 2 : 1;
  }
  auto const of = [&](std::int64_t free, bool opens = true, double left = 1) {
    std::vector<std::int64_t> samples;
    for (auto const& [worker, some] : share_out(members, 0, opens, left, free, facts, policy).samples)
      samples.push_back(some);
    return samples;
  };
  CHECK(of(4000) == std::vector<std::int64_t>{32, 32, 60});
  CHECK(of(60) == std::vector<std::int64_t>{16, 16, 32});  // whole batches: the ledger gives the last one less
  CHECK(of(4) == std::vector<std::int64_t>{4, 4, 4});
  members[1].lease = 7;
  CHECK(of(4000, false, 0.5) == std::vector<std::int64_t>{16, 32});  // of the plan for all three
  members[2].leaving = true;
  members[3].done = 0;
  CHECK(of(4000).empty());
}

TEST_CASE("rules and facts that cannot be are refused by the name of their flag") {
  auto const configuration = ErrorKind::configuration;
  auto const with = [](auto change) {
    Policy policy;
    change(policy);
    validate(policy);
  };
  with([](Policy&) {});
  REQUIRE_ERROR(with([](Policy& p) { p.workers = 0; }), configuration, "--workers");
  REQUIRE_ERROR(with([](Policy& p) { p.quorum = 0; }), configuration, "--quorum");
  REQUIRE_ERROR(with([](Policy& p) { p.discount = std::numeric_limits<double>::quiet_NaN(); }), configuration,
                "--discount");
  REQUIRE_ERROR(with([](Policy& p) { p.trim = 0.5; }), configuration, "--trim");
  REQUIRE_ERROR(with([](Policy& p) { p.norm_limit = 0.5; }), configuration, "--norm-limit");
  REQUIRE_ERROR(with([](Policy& p) { p.lost_after = p.heartbeat; }), configuration, "--lost-after");
  REQUIRE_ERROR(with([](Policy& p) { p.chunk_bytes = 1 << 30; }), configuration, "--chunk");
  Facts facts;
  REQUIRE_ERROR(validate(facts), configuration, "0 parameters");
  facts.parameters = 10;
  facts.batch = 4;
  facts.samples = 42;
  REQUIRE_ERROR(validate(facts), configuration, "42 samples is not a multiple of the batch of 4");
  facts.samples = 40;
  validate(facts);
}
