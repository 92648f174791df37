// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// States that a loss updates, parameters that are not trained, and models that were not made ready.
// Covers: <tutti/graph/differs.hpp> <tutti/train/initialisation.hpp> <tutti/train/own_updates.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"
#include "train/own_states.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/graph/custom.hpp>
#include <tutti/optim.hpp>
#include <tutti/train/algorithm.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/state_files.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using test::Averaged;
using test::CountedConfig;
using test::CountedLoss;
using test::Rows;

TEST_CASE("states of a loss are replicated, averaged or each rank's own, resume bitwise, and evaluation leaves them") {
  for (int ranks : {1, 2, 3, 4})
    for (parallel::Replicas replicas : {parallel::Replicas::per_node, parallel::Replicas::per_rank})
      for (std::int64_t micro_steps : {1, 2}) {
        INFO(ranks << " ranks, one copy: " << (replicas == parallel::Replicas::per_node) << ", " << micro_steps
                   << " micro-steps");
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        threads::run(ranks, [&](Communicator<Threads>& communicator) {
          wrong[static_cast<std::size_t>(communicator.rank())] =
              test::states_over_ranks(communicator, replicas, micro_steps);
        });
        for (std::string const& said : wrong) CHECK(said == "");
      }
}

namespace {

/// Changes its second operand, a state, while it runs.
struct CountedInPlace {
  static constexpr std::string_view name = "counted_in_place";
  static constexpr std::uint32_t updates = 1u << 1;
  static graph::Type type(graph::OperandTypes const& in) {
    return {DType::float32, graph::Replication::replicated, in.shape(0)};
  }
  static std::vector<double> reference(graph::naive::Call const& call) { return call.in(0); }
  static void run(exec::Context&, graph::CustomArguments const& args) {
    *reinterpret_cast<float*>(args.operands[1].data) += 1;
    std::memcpy(args.result.data, args.operands[0].data, static_cast<std::size_t>(args.result.shape.size()) * 4);
  }
};
struct InPlaceLoss {
  using Config = CountedConfig;
  graph::Var operator()(test::CountedModel const& p, graph::Var tokens, graph::Var targets) const {
    graph::Var const x = embed(p.table, tokens);
    graph::Var const seen = graph::custom<CountedInPlace>({stop_gradient(x), tokens.builder->state("count", {})});
    return cross_entropy(x + seen * 0.0, targets);
  }
};

}  // namespace

TEST_CASE("an operation that changes a state in place is refused in a loss, naming it and the line") {
  exec::Context context({.threads = 1});
  using Step = TrainStep<InPlaceLoss>;
  REQUIRE_ERROR(Step(context, CountedConfig{}, {}, {.batch = 2, .sequence = 8}), ErrorKind::unavailable,
                "operation 'counted_in_place' (own_states.cpp:");
}

TEST_CASE("replicas that start apart are told of at the first step, on every rank") {
  std::vector<std::string> told(2);
  threads::run(2, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    TrainStep<Averaged> step(context, CountedConfig{}, {}, {.batch = 2, .sequence = 8});
    step.connect(parallel::data_parallel(communicator, parallel::Replicas::per_rank));
    step.initialise(static_cast<std::uint64_t>(1 + communicator.rank()));
    Tensor<std::int32_t> const tokens = full<std::int32_t>({2, 8}, 3);
    try {
      step({0, tokens.view(), tokens.view()}, 1e-3);
    } catch (Error const& error) {
      told[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
  });
  for (std::string const& text : told) {
    CHECK(test::contains(text, "differ from rank 0's on rank 1 at the first step"));
    CHECK(test::contains(text, "own_states.cpp:"));
  }
}

TEST_CASE("a state that is said to be the same on all ranks and depends on the batch is refused, on one rank too") {
  exec::Context context({.threads = 1});
  using Step = TrainStep<CountedLoss<graph::StateUpdate::replicated>>;
  REQUIRE_ERROR(Step(context, CountedConfig{}, {}, {.batch = 2, .sequence = 8}), ErrorKind::communication,
                "'mean' is updated with a value of the batch (own_states.hpp:");
}

TEST_CASE("what differs between ranks is found through operations, collectives and loops") {
  using namespace graph;
  Builder b;
  Var const x = b.input("x", DType::float32, {2}), p = b.parameter("p", {2}, zeros()),
            own = b.state("own", {2}, StateUpdate::per_rank), same = b.state("same", {2}, StateUpdate::averaged);
  Var const reduced = all_reduce(vary(x), comm::PortOp::avg);
  auto const loop = [&](Var start, Var added, std::int64_t length) {
    Scan body(b, start, length, Where::current());
    Var const next = body.carried() + added;
    return body.finish(next);
  };
  // The second of two values that are carried takes on the first one's an iteration later.
  b.output("x", x * 2.0);
  b.output("p", p + same);
  b.output("own", own + 0.0);
  b.output("reduced", reduced + p);
  b.output("loop of p", loop(p, same, 2));
  b.output("loop adding x", loop(p, x, 2));
  b.output("loop from x", loop(x, p, 2));
  b.output("loop adding reduced", loop(p, reduced, 2));
  Graph const graph = canonical(b.graph());
  List<bool> const differs = differing(graph);
  auto const differ = [&](char const* name) { return differs[static_cast<std::size_t>(graph.find_output(name))]; };
  for (char const* name : {"x", "own", "loop adding x", "loop from x"}) {
    INFO(name);
    CHECK(differ(name));
  }
  for (char const* name : {"p", "reduced", "loop of p", "loop adding reduced"}) {
    INFO(name);
    CHECK_FALSE(differ(name));
  }
}

TEST_CASE("frozen parameters keep their bits, have no moments, and a name that is none of them is an error") {
  exec::Context context({.threads = 1});
  auto const trained = [&](std::vector<std::string> frozen) {
    nn::Gpt2Config const& config = test::small_gpt2;
    TrainStep<nn::Gpt2Loss> step(context, config, {.weight_decay = 0.5},
                                 {.batch = 2, .sequence = 8, .clip = 0.5, .frozen = std::move(frozen)});
    step.initialise(3);
    test::Contents const before = test::contents_of(step.state());
    for (int i = 0; i < 3; ++i) step(Rows(i, 0, 2).at(i), 1e-2);
    std::string changed;
    for (auto const& [name, bytes] : test::contents_of(step.state()))
      if (step.state().at(name).parameter && before.at(name) != bytes) changed += name + " ";
    for (graph::Field const& field : step.state().fields())
      if (field.parameter && step.state().find("m." + field.name) == nullptr) changed += "-" + field.name + " ";
    return changed;
  };
  std::string const all = trained({}), fewer = trained({"wte", "*ln_1*"});
  CHECK(test::contains(all, "wte "));
  CHECK(all.find('-') == std::string::npos);
  CHECK(fewer.find("-wte ") != std::string::npos);
  CHECK(fewer.find("-blocks.ln_1.weight ") != std::string::npos);
  CHECK(fewer.find(" wte ") == std::string::npos);
  CHECK(test::contains(fewer, "wpe "));
  CHECK(test::contains(fewer, "blocks.ln_2.weight "));
  REQUIRE_ERROR(trained({"wet"}), ErrorKind::configuration, "no parameter is named 'wet'");
  REQUIRE_ERROR(trained({"*"}), ErrorKind::configuration, "no parameter has a gradient");
  static_assert(optim::matches("a*c*", "abcd") && optim::matches("*", "") && !optim::matches("a*c", "abcd"));
}

TEST_CASE("a step of parameters that were never initialised, and a stack without layers, are errors") {
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(TrainStep<Averaged>(context, CountedConfig{.layers = 0}, {}, {.batch = 2, .sequence = 8}),
                ErrorKind::configuration, "'layers.shift' is in a Stack of length 0");
  TrainStep<Averaged> step(context, {}, {}, {.batch = 2, .sequence = 8});
  Rows const rows(0, 0, 2);
  REQUIRE_ERROR(step(rows.at(0), 1e-3), ErrorKind::invalid_argument, "Call initialise(seed)");
  REQUIRE_ERROR(step.evaluate(rows.tokens.view(), rows.targets.view()), ErrorKind::invalid_argument,
                "parameter 'table' starts with random values and was never given any");
  test::Contents given = test::contents_of(step.state());  // written from outside counts as well
  for (auto& [name, bytes] : given) std::fill(bytes.begin(), bytes.end(), std::byte{0x3c});
  test::restore(step.state(), given);
  CHECK(std::isfinite(step(rows.at(0), 1e-3).loss));
}

TEST_CASE("evaluation of a wrong shape names the shapes and the caller's line") {
  exec::Context context({.threads = 1});
  TrainStep<Averaged> step(context, {}, {}, {.batch = 2, .sequence = 8});
  step.initialise(1);
  Rows const three(0, 0, 3);
  REQUIRE_ERROR(step.evaluate(three.tokens.view(), three.targets.view()), ErrorKind::shape, "and must be (2, 8)");
  REQUIRE_ERROR(step.evaluate(three.tokens.view(), three.targets.view()), ErrorKind::shape, "own_states.cpp:");
  REQUIRE_ERROR(step(three.at(0), 1e-3), ErrorKind::shape, "own_states.cpp:");
}

TEST_CASE("a checkpoint of several ranks gives every rank its own states back, and states of any type") {
  test::ScratchFolder const folder;
  std::vector<test::Contents> saved(2), read(2);
  threads::run(2, [&](Communicator<Threads>& communicator) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    exec::Context context({.threads = 1});
    using Step = TrainStep<Averaged>;
    auto const ranks = parallel::data_parallel(communicator);
    auto const make = [&] {
      auto step = std::make_unique<Step>(context, test::CountedConfig{}, optim::AdamW{},
                                         TrainStepOptions{.batch = 2, .sequence = 8});
      step->initialise(42);
      return step;
    };
    auto const first = make();
    DataParallelTraining<Step> training(*first, 2);
    training.connect(ranks);
    for (std::int64_t i = 0; i < 3; ++i) (*first)(Rows(i, 2 * communicator.rank(), 2).at(i), 1e-2);
    CheckpointContents contents = contents_of(first->state(), 3);
    training.keep(contents, folder.path());
    contents.facts = {{"model", {{"layers", 2}}}};
    if (rank == 0) save_checkpoint(folder.path(), contents, 0);
    communicator.barrier();
    saved[rank] = test::contents_of(first->state());

    Checkpoint const checkpoint(std::filesystem::path(folder.path()) / "checkpoints" / "step_00000003");
    auto const second = make();
    DataParallelTraining<Step> resumed(*second, 2);
    resumed.connect(ranks);
    if (rank == 0) {
      read_parameters(checkpoint, second->state());
      read_moments(checkpoint, second->state());
    }
    parallel::broadcast(*ranks.port, second->state());
    resumed.begin(&checkpoint);
    read[rank] = test::contents_of(second->state());
  });
  for (std::size_t rank : {0u, 1u}) CHECK(read[rank] == saved[rank]);
  CHECK(saved[0].at("own") != saved[1].at("own"));
}

TEST_CASE("a model may start some of its random parameters at zero") {
  exec::Context context({.threads = 1});
  TrainStep<nn::Gpt2Loss> step(context, test::small_gpt2, optim::AdamW{}, {.batch = 2, .sequence = 8});
  step.initialise(1);
  for (float& x : step.state()["wpe"].elements()) x = 0;
  Rows const rows(0, 0, 2);
  CHECK(std::isfinite(step(rows.at(0), 1e-3).loss));
}

TEST_CASE("a token outside the vocabulary is told at the caller's line, with the line of the model") {
  exec::Context context({.threads = 1});
  TrainStep<Averaged> step(context, {}, {}, {.batch = 2, .sequence = 8});
  step.initialise(1);
  Rows rows(0, 0, 2);
  rows.tokens(1, 3) = 500;
  std::string const model = "[traced at own_states.hpp:";
  REQUIRE_ERROR(step(rows.at(0), 1e-3), ErrorKind::out_of_range, "token 500 of sequence 1, position 3");
  REQUIRE_ERROR(step(rows.at(0), 1e-3), ErrorKind::out_of_range, model);
  REQUIRE_ERROR(step.evaluate(rows.tokens.view(), rows.targets.view()), ErrorKind::out_of_range, model);
  REQUIRE_ERROR(step.evaluate(rows.tokens.view(), rows.targets.view()), ErrorKind::out_of_range, "(own_states.cpp:");
}

namespace {

/// An optimizer from outside of the library: a moving average, which it keeps, and of which no element goes far.
struct BoundedDescent {
  double weight_decay = 0.1;

  void update(optim::ParameterUpdate const& p) const {
    graph::Var const average = p.state("average"), next = average * p.scalar("kept") + p.gradient * p.gradient_scale;
    p.builder.update(average, next);
    graph::Var const kept = p.parameter * (1.0 - p.learning_rate * p.weight_decay);
    p.builder.update(p.parameter, kept - tanh(next * 10.0) * p.learning_rate);
  }
  List<optim::StepScalar> scalars(std::int64_t step) const { return {{"kept", step == 1 ? 0.0 : 0.9}}; }
  std::string describe() const { return "bounded descent"; }
};

}  // namespace

TEST_CASE("any optimizer trains alike on one rank and on two, with one copy of the state or two, and resumes bitwise") {
  std::vector<optim::AnyOptimizer> const optimizers{
      optim::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}, optim::Muon{.weight_decay = 0.1},
      BoundedDescent{}};
  using Step = TrainStep<nn::Gpt2Loss>;
  for (optim::AnyOptimizer const& optimizer : optimizers) {
    INFO(optimizer.describe());
    auto const make = [&](exec::Context& context, std::int64_t rows) {
      auto step = std::make_unique<Step>(context, test::small_gpt2, optimizer,
                                         TrainStepOptions{.batch = rows, .sequence = 8, .micro_steps = 2, .clip = 0.5,
                                                          .groups = {{.pattern = "*bias", .rate = 0.5},
                                                                     {.pattern = "wpe", .frozen = true}}});
      step->initialise(3);
      return step;
    };
    // Losses of four steps; with a break after two, by another step that takes over what the first one had.
    auto const train = [&](std::unique_ptr<Step> step, std::int64_t row, std::int64_t rows, auto&& takes_over) {
      std::vector<float> losses;
      for (std::int64_t i = 0; i < 4; ++i) {
        if (i == 2) step = takes_over(std::move(step));
        losses.push_back((*step)(Rows(i, row, 2 * rows).at(i), 1e-2).loss);
      }
      return std::pair(losses, test::contents_of(step->state()));
    };
    auto const goes_on = [](std::unique_ptr<Step> step) { return step; };
    exec::Context context({.threads = 1});
    auto const alone = train(make(context, 2), 0, 2, goes_on);
    CHECK(train(make(context, 2), 0, 2, [&](std::unique_ptr<Step> step) {
            auto next = make(context, 2);
            test::restore(next->state(), test::contents_of(step->state()));
            next->set_updates(2);
            return next;
          }) == alone);
    for (parallel::Replicas replicas : {parallel::Replicas::per_node, parallel::Replicas::per_rank}) {
      std::vector<std::vector<float>> losses(2);
      threads::run(2, [&](Communicator<Threads>& communicator) {
        exec::Context own({.threads = 1});
        auto step = make(own, 1);
        step->connect(parallel::data_parallel(communicator, replicas));
        auto const rank = static_cast<std::size_t>(communicator.rank());
        losses[rank] = train(std::move(step), 2 * communicator.rank(), 1, goes_on).first;
      });
      for (std::size_t i = 0; i < 4; ++i)
        for (auto const& of_rank : losses) CHECK(of_rank[i] == Approx(alone.first[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("dropout drops the same on any number of ranks and micro-steps, other elements every step, none to measure") {
  nn::Gpt2Config config = test::small_gpt2;
  using Step = TrainStep<nn::Gpt2Loss>;
  struct Outcome {
    std::vector<float> losses;
    double validation = 0;
    bool operator==(Outcome const&) const = default;
  };
  auto const run = [&](int ranks, std::int64_t micro_steps, std::int64_t seed, double rate) {
    Outcome outcome;
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      std::int64_t const rows = 4 / ranks, first = communicator.rank() * rows;
      Step step(context, config, optim::AdamW{},
                {.batch = rows / micro_steps, .sequence = 8, .evaluation_batch = 1, .micro_steps = micro_steps,
                 .seed = seed, .first_row = first});
      step.initialise(3);
      step.connect(parallel::data_parallel(communicator));
      Outcome mine;
      Rows const held_out(9, 0, 1);
      mine.validation = step.evaluate(held_out.tokens.view(), held_out.targets.view());
      for (std::int64_t i = 0; i < 3; ++i) mine.losses.push_back(step(Rows(0, first, rows).at(i), rate).loss);
      if (communicator.rank() == 0) outcome = mine;
    });
    return outcome;
  };
  Outcome const plain = run(1, 1, 5, 0);
  CHECK(plain.losses[1] == plain.losses[0]);
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  Outcome const standing = run(1, 1, 5, 0), dropped = run(1, 1, 5, 1e-2);
  CHECK(standing.validation == plain.validation);
  CHECK(standing.losses[0] != plain.losses[0]);
  CHECK(standing.losses[1] != standing.losses[0]);  // the same batch and parameters, another mask
  CHECK(run(1, 1, 6, 0).losses[0] != standing.losses[0]);
  CHECK(run(1, 1, 5, 1e-2) == dropped);
  using Layouts = std::initializer_list<std::pair<int, std::int64_t>>;
  for (auto const& [ranks, micro_steps] : Layouts{{1, 4}, {2, 1}, {2, 2}, {4, 1}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    Outcome const other = run(ranks, micro_steps, 5, 1e-2);
    for (std::size_t i = 0; i < 3; ++i) CHECK(other.losses[i] == Approx(dropped.losses[i]).epsilon(1e-5));
  }
}
