// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/train_step.hpp> <tutti/train/step_graph.hpp> <tutti/parallel/mesh.hpp>
// Covers: <tutti/train/pipelined_step.hpp> <tutti/train/stage_state.hpp> <tutti/train/whole_state.hpp>
// Covers: <tutti/parallel/pipeline.hpp> <tutti/parallel/stage_evaluation.hpp> <tutti/train/stage_programs.hpp>
#include "support/catch.hpp"
#include "train/meshes.hpp"
#include "train/own_states.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/optim/muon.hpp>
#include <tutti/optim/sgd.hpp>
#include <tutti/parallel/compression.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace tutti;

// A model of one's own, which knows nothing of ranks, and what they divide of it.
namespace own {

struct Block {
  BOOST_HANA_DEFINE_STRUCT(Block, (nn::RmsNorm, norm), (nn::Linear, up), (nn::Linear, down));
};
struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (graph::Param, table), (graph::Stack<Block>, blocks), (nn::Linear, head));
};
struct Config {
  std::int64_t width = 12, hidden = 32, layers = 3;
};
Model make_parameters(Config const& config) {
  Model model;
  model.table = {{20, config.width}, graph::normal(0.5)};
  model.blocks.length = config.layers;
  model.blocks.block.norm = nn::rms_norm_of(config.width);
  model.blocks.block.up = nn::linear_of(config.width, config.hidden, 0.2);
  model.blocks.block.down = nn::linear_of(config.hidden, config.width, 0.2);
  model.head = nn::linear_of(config.width, 20, 0.2);
  return model;
}
struct Loss {
  using Config = own::Config;
  graph::Var operator()(Model const& p, graph::Var tokens, graph::Var targets) const {
    graph::Var x = graph::embed(p.table, tokens);
    x = graph::repeat(p.blocks, x, [](Block const& b, graph::Var h) { return h + b.down(silu(b.up(b.norm(h)))); });
    return graph::cross_entropy(p.head(x), targets);
  }
};
struct Shared : Loss {  // every layer reads the bias of the head
  graph::Var operator()(Model const& p, graph::Var tokens, graph::Var targets) const {
    graph::Var x = graph::embed(p.table, tokens);
    graph::Var const wide = broadcast_in_dim(sum_all(graph::Var(p.head.bias)) * 0.1, x.shape(), {});
    x = graph::repeat(p.blocks, x, [&](Block const& b, graph::Var h) {
      return h + b.down(silu(b.up(b.norm(h + wide))));
    });
    return graph::cross_entropy(p.head(x), targets);
  }
};
nn::ShardRules shard_rules(Config const&) {
  return {{"blocks.up.*", 0}, {"blocks.down.weight", 1}, {"head.*", 0}};
}

}  // namespace own

namespace {

template <class Loss>
std::string on_threads(typename Loss::Config const& config, parallel::MeshSizes const& sizes,
                       test::MeshRun const& run = {}) {
  int const ranks = sizes.data * sizes.tensor * sizes.pipeline;
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    wrong[static_cast<std::size_t>(communicator.rank())] =
        test::train_on_mesh<Loss>(communicator, config, sizes, run);
  });
  std::string all;
  for (std::string const& one : wrong) all += one;
  return all;
}

}  // namespace

TEST_CASE("every mesh trains a GPT-2 as one rank does, twice the same bits, from what any other left") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, sizes) == "");
  }
}
TEST_CASE("and a LLaMA with grouped heads") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {1, 4}, {2, 2}, {4, 1}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, sizes) == "");
  }
}
TEST_CASE("and a model of one's own, by rules of its own") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {2, 2}, {1, 4}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<own::Loss>({}, sizes) == "");
  }
}
TEST_CASE("micro-steps, recomputed blocks and SGD go with a tensor axis") {
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {1, 2}, {.micro_steps = 4}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2}, {.micro_steps = 2, .recompute = graph::Recompute::block}) ==
        "");
  CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {1, 2}, {.recompute = graph::Recompute::pointwise}) == "");
  CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {1, 2}, {.optimizer = optim::Sgd{.momentum = 0.9}}) == "");
}

TEST_CASE("ranks that share the tokens of what they do not divide train as one does") {
  test::MeshRun const shares{.sequence_parallel = true};
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 2}, {1, 4}, {2, 2}}) {
    INFO(sizes.data << " x " << sizes.tensor);
    CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, sizes, shares) == "");
    CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, sizes, shares) == "");
  }
  CHECK(on_threads<own::Loss>({}, {1, 4}, shares) == "");
  nn::Gpt2Config dropping = test::mesh_gpt2;
  dropping.dropout = 0.25;
  CHECK(on_threads<nn::Gpt2Loss>(dropping, {1, 4}, shares) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2},
                                 {.micro_steps = 2, .recompute = graph::Recompute::block, .sequence_parallel = true}) ==
        "");
  nn::Gpt2Config wide = test::mesh_gpt2;  // stages of a pipeline
  wide.layers = 4;
  CHECK(on_threads<nn::Gpt2Loss>(wide, {1, 2, 2}, {.micro_steps = 2, .sequence_parallel = true}) == "");
}
TEST_CASE("what ranks keep of what they do not divide shrinks by their number") {
  constexpr std::int64_t batch = 2, length = 32, channels = 32, layers = 24, heads = 4, ranks = 4;
  nn::Gpt2Config const deep{.layers = layers, .heads = heads, .channels = channels, .vocabulary = 20,
                            .padded_vocabulary = 20, .max_tokens = length};
  exec::Context context({.threads = 1});
  auto const planned = [&](bool shares) {
    train::TrainStep<nn::Gpt2Loss> step(context, deep, optim::AdamW{},
                                        {.batch = batch, .sequence = length, .tensor = ranks,
                                         .sequence_parallel = shares});
    return static_cast<double>(step.workspace_bytes());
  };
  // Floats of a token and layer: entering values and results of the norms with their statistics are whole; packed
  // projections, attention with its sums, and twice the wide layer are divided.
  double const whole = 4 * channels + 4, divided = (3 + 1 + 8) * channels + heads,
               kept = 4.0 * batch * length * layers;
  double const expected = kept * whole * (1 - 1.0 / ranks), without = planned(false), with = planned(true);
  double const fraction = (whole / ranks + divided / ranks) / (whole + divided / ranks);
  std::printf("activations and gradients of a rank of 4: %.0f bytes, with shares of the tokens %.0f; %.0f fewer, of "
              "kept activations %.0f, which become %.3f of what they were\n",
              without, with, without - with, expected, fraction);
  // But for the tensors (batch, sequence, channels) of one product that are gathered while it works.
  CHECK(std::abs(without - with - expected) < 5 * 4.0 * batch * length * channels);
  CHECK(with / without < fraction + 0.05);
}

TEST_CASE("ranks that have parts of parameters, gradients and moments train as one does, from what any other left") {
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {4, 1}, {.zero = 3}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 1}, {.zero = 2}) == "");
  CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {2, 1}, {.micro_steps = 4, .zero = 3}) == "");
  CHECK(on_threads<own::Loss>({.width = 10}, {4, 1}, {.optimizer = optim::Sgd{.momentum = 0.9}, .zero = 3}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 1},
                                 {.micro_steps = 2, .recompute = graph::Recompute::block, .zero = 3}) == "");
}
TEST_CASE("of parameters, gradients and moments a rank of four has little more than a quarter, of plans") {
  nn::Gpt2Config const deep{.layers = 24, .heads = 4, .channels = 64, .vocabulary = 20, .padded_vocabulary = 20,
                            .max_tokens = 8};
  exec::Context context({.threads = 1});
  double bytes[3] = {};
  for (int const stage : {0, 2, 3}) {
    train::TrainStep<nn::Gpt2Loss> step(context, deep, optim::AdamW{},
                                        {.batch = 1, .sequence = 1, .clip = 1, .state_ranks = stage == 0 ? 1 : 4,
                                         .gather_again = stage == 3});
    double& all = bytes[stage == 0 ? 0 : stage - 1];
    all = static_cast<double>(step.state_bytes() + step.workspace_bytes());
    std::printf("ZeRO %d: %lld bytes of parameters and moments, %lld of gradients, what is gathered and activations of "
                "one token: %.3f of one rank's\n",
                stage, static_cast<long long>(step.state_bytes()), static_cast<long long>(step.workspace_bytes()),
                all / bytes[0]);
  }
  CHECK(bytes[2] < 0.32 * bytes[0]);
  CHECK(bytes[1] < 0.60 * bytes[0]);  // with all parameters between the passes
}

TEST_CASE("a step that is not connected as it was made, or whose model has no rules, says so") {
  exec::Context context({.threads = 1});
  train::TrainStep<nn::Gpt2Loss> step(context, test::mesh_gpt2, optim::AdamW{}, {.sequence = 8, .tensor = 2});
  REQUIRE_ERROR(step.initialise(1), ErrorKind::invalid_argument,
                "the step is one of 2 ranks of a tensor axis and is not connected to them. Call connect first");
  REQUIRE_ERROR(step.connect({}), ErrorKind::invalid_argument,
                "the ranks of the tensor axis are 1, and the step is made for 2. Set TrainStepOptions::tensor");
  auto const refused = [&]<class Loss>(Loss, typename Loss::Config const& config, optim::AnyOptimizer const& optimizer,
                                       int tensor, ErrorKind kind, char const* sentence) {
    REQUIRE_ERROR(train::TrainStep<Loss>(context, config, optimizer, {.sequence = 8, .tensor = tensor}), kind,
                  sentence);
  };
  refused(test::Averaged{}, {}, optim::AdamW{}, 2, ErrorKind::unavailable, "free function shard_rules(config)");
  refused(nn::Gpt2Loss{}, test::mesh_gpt2, optim::AdamW{}, 0, ErrorKind::configuration, "at least 1 rank");
  auto const shares = [&](std::int64_t batch, std::int64_t sequence, int tensor, char const* sentence) {
    REQUIRE_ERROR(train::TrainStep<nn::Gpt2Loss>(context, test::mesh_gpt2, optim::AdamW{},
                                                 {.batch = batch, .sequence = sequence, .tensor = tensor,
                                                  .sequence_parallel = true}),
                  ErrorKind::configuration, sentence);
  };
  REQUIRE_ERROR(
      train::TrainStep<nn::Gpt2Loss>(context, test::mesh_gpt2, optim::Muon{}, {.sequence = 8, .state_ranks = 2}),
      ErrorKind::unavailable, "is divided among the ranks of the data axis, and to make a matrix orthogonal");
  train::TrainStep<nn::Gpt2Loss> part(context, test::mesh_gpt2, optim::AdamW{}, {.sequence = 8, .state_ranks = 2});
  threads::run(2, [&](Communicator<Threads>& communicator) {
    exec::Context own({.threads = 1});
    train::TrainStep<nn::Gpt2Loss> both(own, test::mesh_gpt2, optim::AdamW{}, {.sequence = 8, .state_ranks = 2});
    REQUIRE_ERROR(both.connect(parallel::data_parallel(communicator, parallel::Replicas::sharded)),
                  ErrorKind::unavailable, "have their moments with them. Use Replicas::per_rank");
  });
  REQUIRE_ERROR(part.initialise(1), ErrorKind::invalid_argument,
                "the step is one of 2 ranks of a data axis and is not connected to them. Call connect first");
  REQUIRE_ERROR(part.connect({}), ErrorKind::invalid_argument,
                "the ranks of the data axis are 1, and the step is made for 2 with parts of its state");
  shares(1, 8, 1, "sequence parallelism is of the ranks of a tensor axis, and the step is made for one");
  shares(3, 5, 2, "the 15 tokens of a micro-step do not divide among 2 ranks of the tensor axis (gpt2.hpp:");
  refused(nn::Gpt2Loss{}, test::mesh_gpt2, optim::AdamW{}, 8, ErrorKind::configuration,
          "4 heads do not divide among 8 ranks of the tensor axis (gpt2.hpp:");
  refused(nn::Gpt2Loss{}, test::mesh_gpt2, optim::AdamW{}, 3, ErrorKind::configuration,
          "'blocks.qkv.weight' has 16 rows along axis 0 in a section, which 3 ranks of the tensor axis do not divide");
  refused(nn::Gpt2Loss{}, test::mesh_gpt2, optim::Muon{}, 2, ErrorKind::unavailable,
          "is divided among the ranks of the tensor axis, and to make a matrix orthogonal takes all of it");
  nn::Gpt2Config dropping = test::mesh_gpt2;
  dropping.attention_dropout = 0.5;
  refused(nn::Gpt2Loss{}, dropping, optim::AdamW{}, 2, ErrorKind::unavailable, "operation 'dropout' (");
}

TEST_CASE("dropout of what every rank has whole draws the masks of one rank") {
  nn::Gpt2Config dropping = test::mesh_gpt2;
  dropping.dropout = 0.25;
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 4}, {1, 2}})
    CHECK(on_threads<nn::Gpt2Loss>(dropping, sizes) == "");
}

TEST_CASE("stages of a pipeline train as one rank does, twice the same bits, from what any other layout left") {
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 1, 2}, {1, 1, 4}, {2, 1, 2}}) {
    INFO(sizes.data << " x " << sizes.pipeline);
    CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, sizes, {.micro_steps = sizes.data > 1 ? 2 : 8}) == "");
  }
  CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {1, 1, 4},
                                 {.micro_steps = 4, .schedule = parallel::PipelineSchedule::gpipe}) == "");
  for (parallel::MeshSizes const& sizes : {parallel::MeshSizes{1, 1, 2}, {1, 1, 4}})
    CHECK(on_threads<nn::LlamaLoss>(test::deep_llama, sizes, {.micro_steps = 2}) == "");
}
TEST_CASE("and a model of one's own, with other optimizers, recomputation and dropout") {
  CHECK(on_threads<own::Loss>({}, {1, 1, 3}, {.micro_steps = 4}) == "");
  CHECK(on_threads<own::Loss>({.layers = 4}, {2, 1, 2}, {.micro_steps = 1, .optimizer = optim::Muon{}}) == "");
  CHECK(on_threads<own::Loss>({.layers = 4}, {1, 1, 2}, {.micro_steps = 2, .optimizer = optim::Sgd{.momentum = 0.9}}) ==
        "");
  nn::Gpt2Config dropping = test::deep_gpt2;
  dropping.dropout = 0.25;
  dropping.attention_dropout = 0.25;
  CHECK(on_threads<nn::Gpt2Loss>(dropping, {1, 1, 2}, {.micro_steps = 4, .recompute = graph::Recompute::block}) == "");
  nn::LlamaConfig documents = test::deep_llama;  // of which every stage makes the mask
  documents.document_mark = 3;
  CHECK(on_threads<nn::LlamaLoss>(documents, {1, 1, 2}, {.micro_steps = 2}) == "");
}
TEST_CASE("several parts of the model on each stage, and uneven ones, train as one rank does") {
  auto const interleaved = parallel::PipelineSchedule::interleaved;
  CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {1, 1, 2},
                                 {.micro_steps = 8, .schedule = interleaved, .virtual_stages = 2}) == "");
  CHECK(on_threads<own::Loss>({.layers = 8}, {1, 1, 4},
                              {.micro_steps = 4, .schedule = interleaved, .virtual_stages = 2}) == "");
  CHECK(on_threads<nn::LlamaLoss>(test::deep_llama, {2, 1, 2},
                                  {.micro_steps = 2, .schedule = interleaved, .virtual_stages = 2}) == "");
  // Of which the second part of a stage reads what the first one does: they add to one sum.
  CHECK(on_threads<own::Shared>({.layers = 6}, {1, 1, 2},
                                {.micro_steps = 4, .schedule = interleaved, .virtual_stages = 3}) == "");
  CHECK(on_threads<own::Loss>({.layers = 5}, {1, 1, 2}, {.micro_steps = 4, .layers = {3, 2}}) == "");
  CHECK(on_threads<own::Loss>(
            {.layers = 7}, {1, 1, 2},
            {.micro_steps = 2, .schedule = interleaved, .virtual_stages = 2, .layers = {1, 2, 3, 1}}) == "");
}
TEST_CASE("gradients of weights where a stage would wait: the numbers of one rank") {
  auto const zero_bubble = parallel::PipelineSchedule::zero_bubble;
  CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {1, 1, 4}, {.micro_steps = 8, .schedule = zero_bubble}) == "");
  CHECK(on_threads<nn::LlamaLoss>(test::deep_llama, {2, 1, 2}, {.micro_steps = 4, .schedule = zero_bubble}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(
            test::deep_gpt2, {1, 1, 2},
            {.micro_steps = 4, .recompute = graph::Recompute::block, .schedule = zero_bubble}) == "");
  CHECK(on_threads<own::Shared>({}, {1, 1, 3}, {.micro_steps = 4, .schedule = zero_bubble}) == "");
}
TEST_CASE("ranks of a stage share out its moments") {
  test::MeshRun const sharded{.micro_steps = 2, .replicas = parallel::Replicas::sharded};
  CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {2, 1, 2}, sharded) == "");
  CHECK(on_threads<own::Loss>({.layers = 4}, {2, 1, 2},
                              {.micro_steps = 2,
                               .schedule = parallel::PipelineSchedule::interleaved,
                               .virtual_stages = 2,
                               .replicas = parallel::Replicas::sharded}) == "");
  std::vector<std::int64_t> bytes(8);
  for (parallel::Replicas replicas : {parallel::Replicas::sharded, parallel::Replicas::per_rank})
    threads::run(4, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      parallel::MeshSizes const sizes{2, 1, 2};
      test::MeshTraining<nn::Gpt2Loss> training(context, test::deep_gpt2, {.replicas = replicas}, sizes,
                                                communicator.rank());
      training.connect(communicator, sizes);
      bytes[static_cast<std::size_t>(communicator.rank() + (replicas == parallel::Replicas::sharded ? 0 : 4))] =
          training.step().state_bytes();
    });
  for (std::size_t stage : {0u, 2u}) {  // parameters and sums of gradients are whole, two moments halved
    CHECK(bytes[4 + stage] == bytes[5 + stage]);
    CHECK(2 * (bytes[stage] + bytes[stage + 1]) == 3 * bytes[4 + stage]);
  }
}
TEST_CASE("gradients of stages are compressed over the data axis, and what was not sent goes on with any layout") {
  for (char const* name : {"bf16", "powersgd:2"}) {
    INFO(name);
    std::vector<float> told[2];
    std::vector<std::string> wrong(4);
    graph::State saved, own[2], unused[4];
    threads::run(4, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      parallel::MeshSizes const sizes{2, 1, 2};
      test::MeshRun const run{.micro_steps = 2, .compress = parallel::compressor_of(name)};
      auto const make = [&] {
        auto made = std::make_unique<test::MeshTraining<nn::Gpt2Loss>>(context, test::deep_gpt2, run, sizes,
                                                                       communicator.rank());
        made->connect(communicator, sizes);
        made->step().initialise(7);
        return made;
      };
      auto const rank = static_cast<std::size_t>(communicator.rank());
      auto const copy = [](graph::State& from, graph::State& to) {
        for (graph::Field& field : from.fields())
          std::memcpy(to.add(field.name, field.dtype, field.shape)->data(), field.data(),
                      static_cast<std::size_t>(field.bytes()));
      };
      auto const first = make(), second = make();
      std::vector<float> losses = first->run(0, 6);
      first->step().show(rank == 0, [&](graph::State& seen) { copy(seen, rank == 0 ? saved : unused[rank]); });
      first->step().own_fields(false, [&](graph::State& seen) {
        if ((rank < 2) == seen.fields().empty()) wrong[rank] += "unsent values are elsewhere; ";
        copy(seen, rank < 2 ? own[rank] : unused[rank]);
      });
      communicator.barrier();
      second->step().fill([&](graph::State& whole) { test::copy_fields(saved, whole); });
      second->step().own_fields(true, [&](graph::State& mine) { test::copy_fields(own[rank % 2], mine); });
      second->step().set_updates(6);
      std::vector<float> const rest = first->run(6, 12), again = second->run(6, 12);
      if (again != rest) wrong[rank] += "a resumed run gives other bits; ";
      losses.insert(losses.end(), rest.begin(), rest.end());
      if (rank == 0) told[0] = losses;
    });
    threads::run(2, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      parallel::MeshSizes const sizes{2, 1};
      test::MeshTraining<nn::Gpt2Loss> training(
          context, test::deep_gpt2, {.micro_steps = 2, .compress = parallel::compressor_of(name)}, sizes,
          communicator.rank());
      training.connect(communicator, sizes);
      training.step().initialise(7);
      auto const losses = training.run(0, 12);
      if (communicator.rank() == 0) told[1] = losses;
    });
    for (std::string const& one : wrong) CHECK(one == "");
    // PowerSGD starts from random columns, of which a stage draws others than a whole model does.
    if (name == std::string_view("bf16")) CHECK(test::furthest(told[0], told[1]) < 1e-3);
    else CHECK(told[0][22] < told[0][0]);
  }
}
TEST_CASE("every program of a stage is measured") {
  std::vector<std::string> names(2);
  std::vector<double> most(2, 0.0);
  threads::run(2, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    parallel::MeshSizes const sizes{1, 1, 2};
    test::MeshTraining<nn::Gpt2Loss> training(
        context, test::deep_gpt2,
        {.micro_steps = 4, .schedule = parallel::PipelineSchedule::zero_bubble, .profile = true}, sizes,
        communicator.rank());
    training.connect(communicator, sizes);
    training.step().initialise(7);
    training.run(0, 3);
    auto const rank = static_cast<std::size_t>(communicator.rank());
    for (train::ProfiledPass const& pass : training.step().profiles()) {
      names[rank] += pass.name + " " + std::to_string(pass.runs) + "; ";
      double total = 0;
      for (std::size_t s = 0; s < pass.profile->size(); ++s)
        total += static_cast<double>(pass.profile->nanoseconds(s));
      if (total <= 0) most[rank] = -1;
      if (!pass.profile->skips_first()) most[rank] = -2;
    }
  });
  CHECK(names[0] == "stage 0, update 1; stage 0, forward 4; stage 0, first gradients of weights 1; stage 0, gradients "
                    "of weights 3; ");
  CHECK(names[1] == "stage 1, update 1; stage 1, forward 4; stage 1, gradients of inputs 4; stage 1, first gradients "
                    "of weights 1; stage 1, gradients of weights 3; ");
  CHECK(most == std::vector<double>{0, 0});
}
TEST_CASE("stages are divided among ranks of a tensor axis as well") {
  nn::Gpt2Config wide = test::mesh_gpt2;
  wide.layers = 4;
  CHECK(on_threads<nn::Gpt2Loss>(wide, {1, 2, 2}, {.micro_steps = 2}) == "");
  nn::LlamaConfig llama = test::mesh_llama;
  llama.layers = 4;
  CHECK(on_threads<nn::LlamaLoss>(llama, {1, 2, 2}, {.micro_steps = 4}) == "");
}
TEST_CASE("parts along the tensor axis, or stages, are shared out along the axis of data too, by every stage of ZeRO") {
  auto const moments = [](test::MeshRun run) {
    run.replicas = parallel::Replicas::sharded;
    return run;
  };
  for (bool const shares : {false, true}) {
    INFO("shares of tokens: " << shares);
    CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2}, moments({.sequence_parallel = shares})) == "");
    CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {2, 2}, moments({.sequence_parallel = shares})) == "");
    for (int const zero : {2, 3}) {
      INFO("ZeRO " << zero);
      CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2},
                                     {.micro_steps = 2, .sequence_parallel = shares, .zero = zero}) == "");
      CHECK(on_threads<nn::LlamaLoss>(test::mesh_llama, {2, 2}, {.sequence_parallel = shares, .zero = zero}) == "");
    }
  }
  CHECK(on_threads<own::Loss>({}, {2, 2}, {.recompute = graph::Recompute::block, .zero = 3}) == "");
  for (int const zero : {2, 3}) {
    INFO("ZeRO " << zero);
    test::MeshRun frozen{.micro_steps = 2, .zero = zero};
    frozen.frozen = {"wpe", "blocks.qkv.*"};
    CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {2, 1, 2}, frozen) == "");
    CHECK(on_threads<nn::Gpt2Loss>(test::mesh_gpt2, {2, 2}, frozen) == "");
    CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {2, 1, 2}, {.micro_steps = 2, .zero = zero}) == "");
    CHECK(on_threads<nn::LlamaLoss>(test::deep_llama, {2, 1, 2}, {.micro_steps = 4, .zero = zero}) == "");
  }
  CHECK(on_threads<own::Shared>({.layers = 4}, {2, 1, 2},
                                {.micro_steps = 2,
                                 .optimizer = optim::Sgd{.momentum = 0.9},
                                 .schedule = parallel::PipelineSchedule::interleaved,
                                 .zero = 3,
                                 .virtual_stages = 2}) == "");
  CHECK(on_threads<nn::Gpt2Loss>(test::deep_gpt2, {2, 1, 2},
                                 {.micro_steps = 4,
                                  .recompute = graph::Recompute::block,
                                  .schedule = parallel::PipelineSchedule::zero_bubble,
                                  .zero = 3}) == "");
}
TEST_CASE("a batch that one stage cannot take fails on all of them, and soon") {
  std::vector<std::string> said(2);
  auto const begun = exec::now_ns();
  try {
    threads::run(2, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      parallel::MeshSizes const sizes{1, 1, 2};
      test::MeshTraining<nn::Gpt2Loss> training(context, test::deep_gpt2, {.micro_steps = 4}, sizes,
                                                communicator.rank());
      training.connect(communicator, sizes);
      training.step().initialise(7);
      test::Rows rows(0, 0, 8);
      rows.tokens(5, 0) = 99;  // of the third micro-batch
      try {
        training.step()(rows.at(0), 1e-2);
      } catch (Error const& error) {
        said[static_cast<std::size_t>(communicator.rank())] = error.what();
        throw;
      }
    });
  } catch (Error const&) {
  }
  CHECK(said[0].find("99") != std::string::npos);
  CHECK(!said[1].empty());
  CHECK(static_cast<double>(exec::now_ns() - begun) < 20e9);
}
TEST_CASE("a stage that is not connected as it was made, or cannot be, says so") {
  exec::Context context({.threads = 1});
  auto const make = [&](train::TrainStepOptions options, auto config) {
    options.sequence = 8;
    options.pipeline = {2, 1};
    return std::make_unique<train::TrainStep<nn::Gpt2Loss>>(context, config, optim::AdamW{}, options);
  };
  auto const step = make({}, test::deep_gpt2);
  step->initialise(1);
  test::Rows const batch(0, 0, 4);
  REQUIRE_ERROR((*step)(batch.at(0), 1e-2), ErrorKind::invalid_argument,
                "the step is one of 2 stages of a pipeline and is not connected to the others. Call connect first");
  REQUIRE_ERROR(step->connect({}), ErrorKind::invalid_argument,
                "the step is stage 1 of 2, and the ranks' pipeline has 1. Set TrainStepOptions::pipeline");
  REQUIRE_ERROR(step->gradient_statistics(batch.at(0)), ErrorKind::unavailable, "have no statistics of gradients");
  CHECK(step->activation_bytes() > 0);
  CHECK(step->activation_bytes() < step->workspace_bytes());
  nn::Gpt2Config odd = test::deep_gpt2;
  odd.layers = 3;
  REQUIRE_ERROR(make({}, odd), ErrorKind::configuration, "the 3 layers of the model do not divide among 2 stages");
  REQUIRE_ERROR(make({.keep_packed = true}, test::deep_gpt2), ErrorKind::unavailable, "keep no packed weights");
}
