// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/plan/collective_cost.hpp> <tutti/plan/pipeline.hpp> <tutti/plan/timeline.hpp>

#include "support/catch.hpp"

#include <tutti/plan/collective_cost.hpp>
#include <tutti/plan/pipeline.hpp>
#include <tutti/plan/simulation.hpp>
#include <tutti/plan/step_simulation.hpp>
#include <tutti/plan/timeline.hpp>

#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::plan;
using Kind = Simulation::Kind;

TEST_CASE("tasks take their resource one after another, in the order in which they became ready") {
  Simulation simulation;
  int const device = simulation.resource("device"), link = simulation.resource("link");
  int const a = simulation.task(device, 2, Kind::forward);
  int const sent = simulation.task(link, 5, Kind::transfer, {a});
  int const b = simulation.task(device, 3, Kind::backward, {a});     // beside the transfer
  int const c = simulation.task(device, 1, Kind::update, {b, sent});  // waits for it
  int const late = simulation.task(link, 1, Kind::transfer, {b});
  CHECK(simulation.run() == 8);
  CHECK(simulation.begin(b) == 2);
  CHECK(simulation.begin(c) == 7);
  CHECK(simulation.begin(late) == 7);
  CHECK(simulation.busy(device) == 6);
  CHECK(simulation.busy(device, Kind::forward) == 2);

  Simulation circle;
  int const one = circle.resource("one");
  int const x = circle.task(one, 1, Kind::forward), y = circle.task(one, 1, Kind::forward, {x});
  circle.order(y, x);
  CHECK_THROWS_AS(circle.run(), Error);
  Simulation nothing;
  CHECK(nothing.run() == 0);
}

TEST_CASE(
    "a ring takes 2 (n - 1) / n of the bytes, and as many latencies as stages: as its messages simulated one by one") {
  double const bytes = 1.2e6, bandwidth = 1e9, latency = 3e-6;
  for (int ranks : {2, 3, 4, 7}) {
    Ring const way = ring(Collective::all_reduce, bytes, ranks);
    double const formula = 2.0 * (ranks - 1) / ranks * bytes / bandwidth + 2 * (ranks - 1) * latency;
    CHECK(way.seconds(latency, bandwidth) == Approx(formula));

    Simulation simulation;
    std::vector<int> links, arrived(static_cast<std::size_t>(ranks), -1);
    for (int r = 0; r < ranks; ++r) links.push_back(simulation.resource("link " + std::to_string(r)));
    for (int stage = 0; stage < way.stages; ++stage) {
      std::vector<int> sent;
      for (int r = 0; r < ranks; ++r)
        sent.push_back(simulation.task(links[static_cast<std::size_t>(r)], latency + way.bytes_a_stage / bandwidth,
                                       Kind::transfer, {arrived[static_cast<std::size_t>(r)]}));
      for (int r = 0; r < ranks; ++r)
        arrived[static_cast<std::size_t>((r + 1) % ranks)] = sent[static_cast<std::size_t>(r)];
    }
    CHECK(simulation.run() == Approx(formula));
    CHECK(2 * ring(Collective::reduce_scatter, bytes, ranks).seconds(latency, bandwidth) == Approx(formula));
  }
  CHECK(ring(Collective::all_reduce, bytes, 1).seconds(latency, bandwidth) == 0);
}

TEST_CASE("of groups over several nodes a rank sends its share of the node's sum") {
  Cluster cluster;
  cluster.nodes = 4, cluster.devices_per_node = 8;
  cluster.inside = {.bandwidth = 100e9, .latency = 1e-6};
  cluster.between = {.bandwidth = 40e9, .latency = 2e-6};
  Layout const layout{.data = 16, .tensor = 2};
  Group const group = group_of(layout, graph::MeshAxis::data, cluster);
  CHECK(group.in_node == 4);
  CHECK(group.nodes == 4);
  double const bytes = 64e6;
  TransferCost const cost = cost_of(Collective::all_reduce, bytes, group, cluster, 2);
  // Inside: 2 * 3/4 of all; between: 2 * 3/4 of a quarter, over an eighth of the node's link.
  CHECK(cost.inside == Approx(1.5 * bytes));
  CHECK(cost.between == Approx(1.5 * bytes / 4));
  CHECK(cost.seconds == Approx(1.5 * bytes / 100e9 + 6e-6 + 1.5 * bytes / 4 / (40e9 / 8) + 12e-6));
  CHECK_THROWS_AS(group_of({.data = 6, .tensor = 2}, graph::MeshAxis::data, cluster), Error);

  cluster.inside.shared_memory = true;
  TransferCost const shared = cost_of(Collective::all_reduce, bytes, {4, 4, 1}, cluster);
  CHECK(shared.by_device);
  CHECK(shared.seconds == Approx(bytes / 100e9 + 1e-6));
  cluster.inside = {};
  CHECK_THROWS_AS(cost_of(Collective::all_reduce, bytes, {4, 4, 1}, cluster), Error);
}

TEST_CASE(
    "what a library holds of collectives is the most that a pass has started and not waited for, whenever they "
    "end") {
  Cluster cluster;
  cluster.devices_per_node = 2;
  cluster.device.float32 = cluster.device.bandwidth = 1e9;
  cluster.inside = {.bandwidth = 1e12, .held = 0.5, .scatter_held = 0.25};  // ended at once
  graph::StepList list;
  auto const start = [&](int slot, std::int64_t elements, bool scatter = false) {
    graph::Step step;
    step.kind = graph::StepKind::all_reduce_start;
    step.slot = slot;
    step.scatter = scatter;
    step.mesh_axis = graph::MeshAxis::data;
    step.reads.push_back({.buffer = 0, .shape = {elements}});
    list.steps.push_back(std::move(step));
  };
  auto const wait = [&](int slot) {
    graph::Step step;
    step.kind = graph::StepKind::all_reduce_wait;
    step.slot = slot;
    list.steps.push_back(std::move(step));
  };
  auto const held = [&] {
    Traffic traffic;
    AxisCosts const costs({.data = 2}, cluster);
    return simulate_pass(list, StepTimes(cluster.device), costs, {}, traffic).held;
  };
  CHECK(held() == 0);
  start(0, 100), start(1, 60);
  CHECK(held() == 0.5 * 4 * 160);
  wait(0), start(2, 90);
  CHECK(held() == 0.5 * 4 * 160);  // the third begins without the first
  wait(1), start(3, 400, true);
  CHECK(held() == 0.5 * 4 * 90 + 0.25 * 4 * 400);
  wait(2), wait(3);
  cluster.inside.held = cluster.inside.scatter_held = 0;
  CHECK(held() == 0);
}

TEST_CASE("resources that share work at full speed while there are few of them") {
  Simulation simulation;
  int const a = simulation.resource("a"), b = simulation.resource("b"), link = simulation.resource("link");
  simulation.share(a, 1);
  simulation.share(b, 1);
  int const first = simulation.task(a, 2, Simulation::Kind::forward);
  int const sent = simulation.task(link, 1, Simulation::Kind::transfer);
  int const second = simulation.task(b, 1, Simulation::Kind::forward, {sent});  // at half speed, beside the first
  CHECK(simulation.run() == Approx(3));
  CHECK(simulation.end(sent) == 1);
  CHECK(simulation.end(first) == Approx(3));
  CHECK(simulation.end(second) == Approx(3));
  CHECK(simulation.busy(b) == Approx(2));
}

TEST_CASE("a device that makes transfers itself and these transfers slow each other down while both last") {
  Simulation simulation;
  int const device = simulation.resource("device"), link = simulation.resource("link");
  simulation.overlap(link, device, 0.75, 2);
  int const sent = simulation.task(link, 1.5, Simulation::Kind::transfer);
  int const first = simulation.task(device, 0.5, Simulation::Kind::forward);  // 2 s, in which 1 of the transfer is done
  int const nothing = simulation.task(device, 0, Simulation::Kind::wait, {sent, first});
  int const second = simulation.task(device, 1, Simulation::Kind::forward, {nothing});
  CHECK(simulation.run() == Approx(3.5));
  CHECK(simulation.end(first) == Approx(2));
  CHECK(simulation.end(sent) == Approx(2.5));
  CHECK(simulation.end(second) == Approx(3.5));
}

TEST_CASE("pipelines take what the formulae of their schedules say") {
  int const stages = 4;
  std::int64_t const micro = 8;
  double const f = 1, b = 2;
  auto const of = [&](Schedule schedule, int chunks = 1, int stage = 0) {
    return parallel::PipelineLayout{stages, stage, schedule, chunks, {}};
  };
  std::vector<StageTimes> const even(stages, {f, b, 1});
  auto const seconds = [&](Schedule schedule, std::vector<StageTimes> const& times, int chunks) {
    return simulate_pipeline(of(schedule, chunks), times, micro, 0).seconds;
  };
  double const ideal = static_cast<double>(micro) * (f + b), bubble = (stages - 1) * (f + b);
  CHECK(seconds(Schedule::gpipe, even, 1) == Approx(ideal + bubble));
  CHECK(seconds(Schedule::one_forward_one_backward, even, 1) == Approx(ideal + bubble));
  PipelineTimes const told = simulate_pipeline(of(Schedule::one_forward_one_backward), even, micro, 0);
  CHECK(told.bubble == Approx((stages - 1.0) / (static_cast<double>(micro) + stages - 1)));
  // Two chunks of half the time each halve it (Narayanan et al. 2021).
  std::vector<StageTimes> const halves(2 * stages, {f / 2, b / 2, 0.5});
  CHECK(seconds(Schedule::interleaved, halves, 2) == Approx(ideal + bubble / 2));
  // ZB-H1: a third of it, where forward and both parts of backward take equally long (Qi et al. 2023).
  CHECK(seconds(Schedule::zero_bubble, even, 1) == Approx(ideal + bubble / 3));

  // Two processors for four stages: what they do takes at least half as long in all.
  PipelineTimes const crowded = simulate_pipeline(of(Schedule::gpipe), even, micro, 0, nullptr, 2);
  CHECK(crowded.seconds >= Approx(stages * ideal / 2));
  CHECK(crowded.seconds < stages * ideal / 2 + bubble);
  CHECK(simulate_pipeline(of(Schedule::gpipe), even, micro, 0, nullptr, 1).seconds == Approx(stages * ideal));
  CHECK(simulate_pipeline(of(Schedule::gpipe), even, micro, 0, nullptr, 4).seconds == Approx(ideal + bubble));
  CHECK_THROWS_AS(simulate_pipeline(of(Schedule::interleaved, 2), halves, 6, 0), Error);
  CHECK(simulate_pipeline({}, {{f, b, 0}}, 3, 0).seconds == Approx(9));
  // The last stage's addend is on its way while the others still go back: here for 3 x 2 s.
  auto const with_sum = [&](double send) {
    return simulate_pipeline(of(Schedule::gpipe), even, micro, 0, nullptr, 0, {{{0, 3}, send}});
  };
  CHECK(with_sum(4).seconds == Approx(ideal + bubble));
  CHECK(with_sum(4).sums == Approx(4));
  CHECK(with_sum(7).sums == Approx(1 + 7));
}

TEST_CASE("of equal stages the bubble that is foretold is the formula's, of every schedule") {
  for (Schedule schedule : {Schedule::one_forward_one_backward, Schedule::gpipe, Schedule::interleaved,
                            Schedule::zero_bubble})
    for (int stages : {2, 3, 4})
      for (int chunks : {1, 2, 3})
        for (std::int64_t micro : {4, 6, 12, 16}) {
          bool const interleaved = schedule == Schedule::interleaved;
          if ((!interleaved && chunks > 1) || (interleaved && micro % stages != 0)) continue;
          INFO(name(schedule) << ", " << stages << " stages, " << chunks << " chunks, " << micro);
          parallel::PipelineLayout const layout{stages, 0, schedule, chunks, {}};
          std::vector<StageTimes> const parts(static_cast<std::size_t>(stages * chunks), {1, 2, 1});
          PipelineTimes const told = simulate_pipeline(layout, parts, micro, 0);
          CHECK(told.bubble == Approx(parallel::pipeline_bubble(layout, micro)));
          double const works = 3.0 * static_cast<double>(micro) * chunks, waits = told.seconds - works;
          double const third = schedule == Schedule::zero_bubble ? 3 : 1;
          CHECK(waits / works == Approx((stages - 1) / (static_cast<double>(micro) * chunks * third)));
        }
}

TEST_CASE("a simulation is drawn as text and as SVG") {
  Simulation simulation;
  int const device = simulation.resource("device"), link = simulation.resource("a<b");
  simulation.resource("unused");
  int const a = simulation.task(device, 1e-3, Kind::forward);
  simulation.task(link, 1e-3, Kind::transfer, {a});
  simulation.task(device, 2e-3, Kind::backward, {a});
  simulation.run();
  std::string const text = timeline_text(simulation, 6);
  CHECK(text.find("device FFBBBB\n") == 0);
  CHECK(text.find("a<b    ..==..\n") != std::string::npos);
  CHECK(text.find("unused") == std::string::npos);
  CHECK(text.find("3.00 ms") != std::string::npos);
  std::string const svg = timeline_svg(simulation, "a & b");
  CHECK(svg.find("<svg") == 0);
  CHECK(svg.find("a &amp; b") != std::string::npos);
  CHECK(svg.find("a&lt;b") != std::string::npos);
  CHECK(svg.find("#59a14f") != std::string::npos);
}
