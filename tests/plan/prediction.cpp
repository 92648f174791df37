// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/plan/programs.hpp> <tutti/plan/step_simulation.hpp> <tutti/plan/step_times.hpp>
// Covers: <tutti/plan/search.hpp> <tutti/plan/table.hpp> <tutti/plan/measure.hpp>
// Covers: <tutti/plan/machine.hpp> <tutti/plan/measure_link.hpp>
// Covers: <tutti/plan/dry_run.hpp>

#include "support/catch.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/io/file.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/plan/dry_run.hpp>
#include <tutti/plan/machine.hpp>
#include <tutti/plan/measure.hpp>
#include <tutti/plan/prediction.hpp>
#include <tutti/plan/search.hpp>
#include <tutti/plan/table.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::plan;
using Loss = nn::Gpt2Loss;

namespace {

constexpr nn::Gpt2Config model{
    .layers = 4, .heads = 4, .channels = 16, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

Cluster machine(int ranks) {
  Cluster cluster;
  cluster.devices_per_node = ranks;
  cluster.shared_state = true;
  cluster.device = {.memory = 1e9, .float32 = 1e9, .bandwidth = 1e9};
  cluster.inside = {.bandwidth = 1e9, .latency = 1e-6, .shared_memory = true};
  return cluster;
}
Work work_of(std::int64_t batch) {
  Work work;
  work.options = {.batch = batch, .sequence = 8, .evaluation_batch = batch, .clip = 1};
  return work;
}

}  // namespace

TEST_CASE("the memory and the traffic of a plan are those of the training step that it is of, to the byte") {
  struct Case {
    char const* layout;
    parallel::Replicas replicas;
  };
  using enum parallel::Replicas;
  for (Case const& one :
       {Case{"d=1,t=1", per_node}, Case{"d=1,t=1,micro=3", per_node}, Case{"d=2,t=1", per_node},
        Case{"d=2,t=1", per_rank}, Case{"d=2,t=1,zero=1,micro=2", sharded}, Case{"d=1,t=2", per_node},
        Case{"d=2,t=2,micro=2", per_node}, Case{"d=2,t=2,zero=1", sharded}, Case{"d=2,t=1,zero=2", per_rank},
        Case{"d=4,t=1,zero=3,micro=2", per_rank}, Case{"d=2,t=2,zero=3", per_rank},
        Case{"d=1,t=1,p=4,micro=4", per_rank}, Case{"d=2,t=1,p=2,micro=2,schedule=gpipe", per_rank},
        Case{"d=1,t=2,p=2,micro=2,schedule=interleaved", per_rank}, Case{"d=2,t=1,p=2,zero=1,micro=2", sharded},
        Case{"d=2,t=1,p=2,zero=3,micro=2,schedule=zero-bubble", per_rank}}) {
    Layout const layout = parse_layout(one.layout);
    Cluster cluster = machine(layout.ranks());
    cluster.shared_state = one.replicas == per_node;
    Work const work = work_of(2);
    RankPrograms const planned = compile_programs<Loss>(model, work.options, work.optimizer, layout, cluster);
    REQUIRE(static_cast<int>(planned.memory.size()) == layout.pipeline);
    std::array<double, 3> sent{};  // by the first stage
    for (int axis = 0; axis < 3; ++axis) {
      auto const along = static_cast<graph::MeshAxis>(axis);
      for (RankPrograms::Pass const& pass : planned.passes)
        sent[static_cast<std::size_t>(axis)] +=
            static_cast<double>(pass.runs * graph::sent_bytes(pass.program.list, along));
      if (layout.pipeline > 1)
        sent[static_cast<std::size_t>(axis)] =
            static_cast<double>(planned.stages[planned.stage[0]].sent_bytes(along, 0, layout.micro_steps));
    }
    struct Real {
      double state = 0, shared = 0, workspace = 0;
      std::array<double, 3> sent{};
    };
    std::vector<Real> real(static_cast<std::size_t>(layout.pipeline));
    int const first_ranks = layout.data * layout.tensor;
    threads::run(layout.ranks(), [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      train::TrainStepOptions options = work.options;
      int const stage = communicator.rank() / first_ranks;
      options.tensor = layout.tensor;
      options.pipeline = layout.stages(stage);
      options.micro_steps = layout.micro_steps;
      options.state_ranks = layout.zero > 1 ? layout.data : 1;
      options.gather_again = layout.zero == 3;
      train::TrainStep<Loss> step(context, model, optim::AdamW{}, options);
      step.connect(parallel::mesh(communicator, {layout.data, layout.tensor, layout.pipeline}, one.replicas));
      step.compile();
      double const workspace = static_cast<double>(step.workspace_bytes());
      if (communicator.rank() % first_ranks != 0) return;
      Real& found = real[static_cast<std::size_t>(stage)];
      found = {static_cast<double>(step.state_bytes()), static_cast<double>(step.shared_bytes()), workspace};
      for (int axis = 0; axis < 3; ++axis)
        found.sent[static_cast<std::size_t>(axis)] =
            static_cast<double>(step.sent_bytes(static_cast<graph::MeshAxis>(axis)));
    });
    for (std::size_t stage = 0; stage < real.size(); ++stage) {
      INFO(one.layout << ", stage " << stage);
      Memory const& memory = planned.memory[stage];
      CHECK(memory.parameters + memory.moments == real[stage].state);
      CHECK(memory.shared == real[stage].shared);
      CHECK(memory.workspace == real[stage].workspace);
    }
    INFO(one.layout);
    CHECK(sent == real[0].sent);
  }
}

TEST_CASE("what a step waits for is what its links take longer than what is computed meanwhile") {
  Work const work = work_of(2);
  Layout const layout{.data = 2};
  Cluster cluster = machine(2);
  cluster.shared_state = false;
  cluster.inside = {.bandwidth = 1e12};
  Prediction const fast = predict<Loss>(model, work, layout, cluster);
  CHECK(fast.exposed < 1e-6);
  CHECK(fast.seconds == Approx(fast.compute).epsilon(1e-3));
  cluster.inside.bandwidth = 1e4;  // a link that is slower than all else
  Prediction const slow = predict<Loss>(model, work, layout, cluster);
  double const transfer = slow.traffic.inside[0] / 1e4;
  CHECK(slow.traffic.inside[0] == Approx(4.0 * static_cast<double>(nn::parameter_count(model))).epsilon(0.2));
  CHECK(slow.seconds == Approx(transfer + slow.compute));  // one bucket, which is full when the last gradient is there
  CHECK(slow.exposed == Approx(slow.seconds - slow.compute).epsilon(1e-6));
  CHECK(slow.memory.messages == 0);
  cluster.inside.held = 1.5;  // one bucket, and sums of a few numbers
  Prediction const holding = predict<Loss>(model, work, layout, cluster);
  double const gradients = 4.0 * static_cast<double>(nn::parameter_count(model));
  CHECK(holding.memory.messages == Approx(1.5 * gradients).epsilon(0.2));
  CHECK(holding.memory_of_all == Approx(slow.memory_of_all + 2 * holding.memory.messages));
  CHECK(holding.seconds == slow.seconds);
  cluster.inside = {.bandwidth = 1e12, .shared_memory = true};
  CHECK(predict<Loss>(model, work, layout, cluster).seconds == Approx(fast.seconds).epsilon(1e-3));
  cluster.processors_per_node = 1;  // both ranks are computed by one
  CHECK(predict<Loss>(model, work, layout, cluster).compute == Approx(2 * fast.compute));
}

TEST_CASE("stages that take turns at one processor take as long as it needs for all of them, updates too") {
  Work const work = work_of(1);
  Layout layout{.micro_steps = 2};
  double const alone = predict<Loss>(model, work, layout, machine(1)).seconds;
  layout.pipeline = 2;
  Cluster cluster = machine(2);
  cluster.shared_state = false;
  cluster.inside = {.bandwidth = 1e15, .shared_memory = true};
  double const apart = predict<Loss>(model, work, layout, cluster).seconds;
  cluster.processors_per_node = 1;
  double const in_turns = predict<Loss>(model, work, layout, cluster).seconds;
  INFO(alone << " s on one rank, " << apart << " s on a processor each, " << in_turns << " s in turns");
  CHECK(apart < 0.9 * alone);
  CHECK(in_turns == Approx(alone).epsilon(0.05));
}

TEST_CASE("transfers that were measured with all ranks at work are as much faster when fewer work, in shared memory") {
  Link const shared{.bandwidth = 1e9, .latency = 1e-3, .gather = 2e9, .scatter = 3e9, .shared_memory = true};
  Link const faster = plan::detail::at_turns(shared, 0.5);
  CHECK(faster.bandwidth == 2e9);
  CHECK(faster.gather == 4e9);
  CHECK(faster.scatter == 6e9);
  CHECK(faster.message == 0);
  CHECK(faster.latency == 5e-4);
  CHECK(plan::detail::at_turns({.bandwidth = 1e9, .latency = 1e-3}, 0.5).bandwidth == 1e9);
}

TEST_CASE("memory that collectives under way take is found in the process's own") {
  constexpr std::size_t block = 4 << 20;
  LonePort port(1);
  std::vector<std::vector<char>> taken;
  double const held = plan::detail::measure_held(
      port, 4, 4.0 * block,
      [&](int i) {
        if (i == 0) taken.clear();
        taken.emplace_back(block, '1');
        return comm::Port::Ticket{0};
      },
      std::source_location::current());
  if (train::ProcessUse::forget_peak()) {
    CHECK(held > 0.9);
    CHECK(held < (TUTTI_SANITIZED ? 1.25 : 1.1));  // the address sanitizer takes an eighth beside it
  } else {
    CHECK(held == 0);
  }
  CHECK(train::ProcessUse::peak_memory() >= train::ProcessUse::share_of_memory());
}

TEST_CASE("what a search is told to refuse is listed with the reason, and other stages of ZeRO are tried") {
  auto const refuse = [](Layout const& layout) { return std::string(layout.zero == 1 ? "not this one" : ""); };
  std::vector<Prediction> const found =
      search<Loss>(model, work_of(1), machine(2), {.sequences = 4, .zero = 2, .refuse = refuse});
  std::set<std::string> possible, refused;
  for (Prediction const& one : found) {
    if (one.refused.empty()) possible.insert(to_string(one.layout).substr(0, 14));
    if (one.refused == "not this one") refused.insert(to_string(one.layout).substr(0, 14));
  }
  CHECK(possible.contains("d=2,t=1,zero=2"));
  CHECK(refused == std::set<std::string>{"d=2,t=1,zero=1"});
}

TEST_CASE("a search has of each pipeline the schedule that is best, where 1F1B leaves stages idle") {
  Cluster cluster = machine(2);
  Work const work = work_of(1);
  std::vector<Prediction> const found = search<Loss>(model, work, cluster, {.sequences = 4, .zero = 3});
  auto const of = [&](int pipeline, int zero) -> Prediction const* {
    for (Prediction const& one : found)
      if (one.layout.pipeline == pipeline && one.layout.zero == zero) return &one;
    return nullptr;
  };
  REQUIRE(of(2, 0) != nullptr);
  Prediction const& best = *of(2, 0);
  CHECK(best.refused.empty());
  CHECK(best.layout.schedule != Schedule::one_forward_one_backward);
  Layout plain = best.layout;
  plain.schedule = Schedule::one_forward_one_backward, plain.chunks = 1;
  Work same = work;
  same.options.batch = best.batch, same.options.evaluation_batch = best.batch;
  CHECK(best.tokens_per_second > predict<Loss>(model, same, plain, cluster).tokens_per_second);
  std::vector<Prediction> const four = search<Loss>(model, work, machine(4), {.sequences = 4, .zero = 3});
  CHECK(std::any_of(four.begin(), four.end(), [](Prediction const& one) {
    return one.refused.empty() && one.layout.pipeline == 2 && one.layout.zero == 3;
  }));
}

TEST_CASE("steps have a phase: forward, head, backward, update, in this order") {
  RankPrograms const planned =
      compile_programs<Loss>(model, work_of(2).options, optim::AdamW{}, {.tensor = 2}, machine(2));
  std::vector<Phase> const phases = phases_of(planned.passes[0].program.list);
  CHECK(std::is_sorted(phases.begin(), phases.end()));
  CHECK(phases.front() == Phase::forward);
  CHECK(phases.back() == Phase::update);
  for (std::size_t s = 0; s < phases.size(); ++s)
    if (planned.passes[0].program.list.steps[s].kind == graph::StepKind::attention) CHECK(phases[s] == Phase::forward);
    else if (planned.passes[0].program.list.steps[s].kind == graph::StepKind::attention_gradient)
      CHECK(phases[s] == Phase::backward);
}

TEST_CASE("a search tries every layout, and says of each that cannot be why") {
  Cluster cluster = machine(8);
  std::vector<Prediction> const found =
      search<Loss>(model, work_of(1), cluster, {.sequences = 16, .zero = 3});
  REQUIRE(!found.empty());
  CHECK(found[0].refused.empty());
  for (std::size_t i = 1; i < found.size(); ++i)
    if (found[i].refused.empty()) CHECK(found[i].tokens_per_second <= found[i - 1].tokens_per_second);
  auto const why = [&](std::vector<Prediction> const& all, char const* layout) -> std::string {
    for (Prediction const& one : all)
      if (to_string(one.layout).starts_with(layout)) return one.refused;
    return "not found";
  };
  CHECK(why(found, "d=1,t=8").find("4 heads do not divide among 8") != std::string::npos);
  CHECK(why(found, "d=1,t=1,p=8").find("the 4 layers of the model do not divide among 8 stages") != std::string::npos);
  CHECK(why(found, "d=2,t=4") == "");
  CHECK(why(found, "d=4,t=1,p=2") == "");
  std::string const text = table(found);
  CHECK(text.find("not possible:") != std::string::npos);
  CHECK(explain(found).find("is the fastest") != std::string::npos);
  CHECK(to_string(rows_of(found[0], 1e9)).find("tokens/s") != std::string::npos);
  CHECK(to_json(found[0]).at("seconds").get<double>() == found[0].seconds);

  cluster.device.memory = 1000;
  std::vector<Prediction> const none = search<Loss>(model, work_of(1), cluster, {.sequences = 16});
  CHECK(why(none, "d=8,t=1").find("memory: needs ") == 0);
  CHECK(explain(none).find("No layout fits") == 0);
  CHECK(why(search<Loss>(model, work_of(1), cluster, {.sequences = 12}), "d=8,t=1").find("not a multiple of 8") !=
        std::string::npos);
}

TEST_CASE(
    "moments, gradients and parameters that ranks share out take less of each, and a pipeline holds micro-batches") {
  Cluster cluster = machine(4);
  cluster.shared_state = false;
  auto const memory = [&](char const* layout) {
    return compile_programs<Loss>(model, work_of(2).options, optim::AdamW{}, parse_layout(layout), cluster).memory[0];
  };
  Memory const none = memory("d=4"), one = memory("d=4,zero=1"), two = memory("d=4,zero=2"),
               three = memory("d=4,zero=3");
  CHECK(one.moments == Approx(none.moments / 4).epsilon(0.1));
  CHECK(two.parameters == Approx(none.parameters / 4).epsilon(0.1));
  CHECK(three.parameters == two.parameters);
  CHECK(three.workspace < two.workspace);
  Memory const both = memory("d=2,t=2,zero=3"), halves = memory("d=1,t=2");
  CHECK(both.parameters == Approx(halves.parameters / 2).epsilon(0.1));
  auto const held = [&](char const* layout) {
    return predict<Loss>(model, work_of(2), parse_layout(layout), cluster).memory.workspace;
  };
  CHECK(held("p=2,micro=4,schedule=gpipe") > held("p=2,micro=4"));
  CHECK(predict<Loss>(model, work_of(2), parse_layout("p=2,micro=4"), cluster).bubble > 0);
  // What the first stage sends on, of the table that the last one reads too the sum of its gradients, the norm.
  Layout const staged = parse_layout("p=2,micro=4");
  RankPrograms const stages = compile_programs<Loss>(model, work_of(2).options, optim::AdamW{}, staged, cluster);
  double const sent = static_cast<double>(stages.stages[0].sent_bytes(graph::MeshAxis::pipeline, 0, 4));
  CHECK(predict<Loss>(model, work_of(2), staged, cluster).traffic.inside[2] == sent + 4 * 32 * 16 + 8);
  // What the trainer refuses is not planned.
  Work packed = work_of(2);
  packed.options.keep_packed = true;
  CHECK_THROWS_AS(predict<Loss>(model, packed, staged, cluster), Error);
  CHECK_THROWS_AS(predict<Loss>(model, packed, parse_layout("d=4,zero=2"), cluster), Error);
  CHECK(predict<Loss>(model, packed, parse_layout("d=4,zero=1"), cluster).seconds > 0);
  CHECK_THROWS_AS(held("d=8"), Error);
}

TEST_CASE("times that were measured are those of a plan, also from a file and from a profile's trace") {
  exec::Context context({.threads = 1});
  Cluster cluster = machine(1);
  Work const work = work_of(2);
  Measurement const measured = measure_steps<Loss>(context, model, work, {}, cluster, 3);
  CHECK(measured.beside > 0);
  CHECK(!measured.steps.empty());
  cluster.device.float32 = cluster.device.bandwidth = 0;
  CHECK_THROWS_AS(predict<Loss>(model, work, {}, cluster), Error);
  Prediction const plan = predict<Loss>(model, work, {}, cluster, &measured.steps);
  CHECK(plan.seconds > 0);
  std::string const path = "plan_measured.json";
  io::write_file(path, measured.steps.to_json().dump());
  MeasuredSteps const read = MeasuredSteps::read(path);
  CHECK(predict<Loss>(model, work, {}, cluster, &read).seconds == Approx(plan.seconds));
  // Of another batch nothing was measured: the rates of its kinds of steps count.
  CHECK(predict<Loss>(model, work_of(4), {}, cluster, &read).seconds == Approx(2 * plan.seconds).epsilon(0.9));

  train::TrainStepOptions options = work.options;
  options.profile = true;
  train::TrainStep<Loss> step(context, model, optim::AdamW{}, options);
  step.initialise(42);
  for (std::int64_t i = 0; i < 2; ++i) step(test::Rows(i, 0, 2).at(i), 1e-3);
  io::write_file(path, step.profiles().back().profile->trace());
  CHECK(predict<Loss>(model, work, {}, cluster, &static_cast<MeasuredSteps const&>(MeasuredSteps::read(path))).seconds >
        0);
  io::write_file(path, R"({"steps": 3})");
  CHECK_THROWS_AS(MeasuredSteps::read(path), Error);
  std::remove(path.c_str());
}

TEST_CASE("a message between two ranks is measured beside the sums of all, and is what stages send each other") {
  std::array<Link, 3> links;
  threads::run(3, [&](Communicator<Threads>& communicator) {
    Shared<comm::Port> const port = comm::port(communicator);
    links[static_cast<std::size_t>(port->rank())] = measure_link(*port, false, 1 << 16, 3);
  });
  for (Link const& link : links) CHECK(link.bandwidth > 0);
  CHECK(links[0].message > 0);
  CHECK(links[1].message > 0);
  CHECK(links[2].message == 0);  // what it does not take part in
  Cluster cluster = machine(3);
  cluster.inside = links[0];
  CHECK(parse_cluster(to_json(cluster).dump(), "written").inside.message == Approx(links[0].message));
  cluster.inside = {.bandwidth = 1e6, .latency = 1e-3, .message = 4e6};
  CHECK(cost_of_message(1e6, {3, 3, 1}, cluster, 1).seconds == Approx(0.251));
  cluster.inside.message = 0;
  CHECK(cost_of_message(1e6, {3, 3, 1}, cluster, 1).seconds == Approx(1.001));
}

TEST_CASE("this machine is measured as a cluster that can be written and read, and a dry run plans a setup on it") {
  Cluster found;
  std::vector<int> codes(2, -1);
  train::Setup setup;
  setup.rows = 2, setup.micro_rows = 4, setup.global_rows = 4, setup.mesh = {.data = 2, .tensor = 1};
  setup.options.sequence = 8, setup.options.threads = 1;
  threads::run(2, [&](Communicator<Threads>& communicator) {
    Place const place = place_of(communicator);
    exec::Context context({.threads = 1});
    Cluster const cluster = measure_machine(context, place);
    if (communicator.rank() == 0) found = cluster;
    codes[static_cast<std::size_t>(communicator.rank())] = dry_run<Loss>(place, setup, model);
  });
  CHECK(codes == std::vector<int>{0, 0});
  CHECK(found.devices() == 2);
  CHECK(found.inside.shared_memory);
  CHECK(found.inside.bandwidth > 0);
  Cluster const read = parse_cluster(to_json(found).dump(), "measured");
  CHECK(read.inside.bandwidth == Approx(found.inside.bandwidth));
  CHECK(read.device.memory == Approx(found.device.memory));
  CHECK(read.processors_per_node == found.processors_per_node);
  CHECK(read.shared_state == found.shared_state);
}
