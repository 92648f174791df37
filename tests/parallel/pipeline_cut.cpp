// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/parallel/pipeline_cut.hpp> <tutti/parallel/pipeline_programs.hpp>
// Covers: <tutti/parallel/node_copier.hpp> <tutti/parallel/gradient_split.hpp> <tutti/parallel/stage_balance.hpp>
#include "support/catch.hpp"

#include <tutti/exec/context.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/param.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/llama.hpp>
#include <tutti/parallel/pipeline_programs.hpp>
#include <tutti/parallel/stage_balance.hpp>
#include <tutti/tensor/tensor.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace tutti;

namespace {

constexpr nn::Gpt2Config gpt2{.layers = 4, .heads = 2, .channels = 8, .vocabulary = 11, .padded_vocabulary = 12,
                              .max_tokens = 6};
constexpr nn::LlamaConfig llama{.layers = 4, .heads = 4, .kv_heads = 2, .channels = 8, .head_size = 2, .hidden = 12,
                                .vocabulary = 11, .padded_vocabulary = 12, .max_tokens = 6};

// A model of one's own: layers know their number, and read a learned value from before the loop, as the head does.
struct Block {
  BOOST_HANA_DEFINE_STRUCT(Block, (graph::Param, up), (graph::Param, down));
};
struct Mlp {
  BOOST_HANA_DEFINE_STRUCT(Mlp, (graph::Param, table), (graph::Param, shift), (graph::Stack<Block>, blocks),
                           (graph::Param, head));
};
struct MlpConfig {
  std::int64_t layers = 4;
};
Mlp make_parameters(MlpConfig const& config) {
  Mlp model;
  model.table = {{11, 6}, graph::normal(0.5)};
  model.shift = {{6}, graph::normal(0.5)};
  model.blocks.length = config.layers;
  model.blocks.block.up = {{9, 6}, graph::normal(0.4)};
  model.blocks.block.down = {{6, 9}, graph::normal(0.4)};
  model.head = {{11, 6}, graph::normal(0.4)};
  return model;
}
struct MlpLoss {
  using Config = MlpConfig;
  graph::Var operator()(Mlp const& p, graph::Var tokens, graph::Var targets) const {
    graph::Var const first = graph::embed(p.table, tokens), shift = silu(graph::Var(p.shift));
    graph::Var const wide = broadcast_in_dim(shift, first.shape(), {2});
    graph::Var x = graph::repeat(p.blocks, first, [&](Block const& b, graph::Var h, graph::Var layer) {
      graph::Var const scaled = h * convert(layer, DType::float32) * 0.1;
      return h + graph::linear(silu(graph::linear(scaled + wide, b.up)), b.down);
    });
    return graph::cross_entropy(graph::linear(x + first * wide, p.head), targets);
  }
};

template <class Loss>
graph::Graph loss_of(typename Loss::Config const& config) {
  return graph::trace(make_parameters(config), [](graph::Builder& b, auto const& parameters) {
    graph::Var const tokens = b.input("tokens", DType::int32, {2, 5}),
                     targets = b.input("targets", DType::int32, {2, 5});
    b.output("loss", Loss{}(parameters, tokens, targets));
  });
}

/// A program over a state, which outlives it.
struct Runs {
  graph::Program program;
  std::unique_ptr<graph::Executor> executor;

  Runs(exec::Context& context, graph::Graph const& graph, graph::State& state) : program(graph::compile(graph)) {
    state.add(graph);
    executor = std::make_unique<graph::Executor>(context, program, state, graph::ExecutorOptions{.poison = true});
  }
  void operator()(int batch) {
    Tensor<std::int32_t> rows(Shape{2, 5});
    for (char const* name : {"tokens", "targets"}) {
      for (std::int64_t i = 0; i < 10; ++i)
        rows.elements()[static_cast<std::size_t>(i)] =
            static_cast<std::int32_t>((i * 7 + batch * 3 + (name[1] == 'o' ? 0 : 5)) % 11);
      if (executor->takes(name)) executor->set(name, std::as_const(rows).view());
    }
    executor->run();
  }
};

void copy_field(graph::State& from, graph::State& to, std::string const& sent, std::string const& received) {
  graph::Field &a = from.at(sent), &b = to.at(received);
  std::memcpy(b.data(), a.data(), static_cast<std::size_t>(a.bytes()));
}

/// Largest difference of loss and of gradients, summed over two batches, between the uncut graph and its stages.
template <class Loss>
double compare(typename Loss::Config const& config, int stages, graph::Recompute recompute = graph::Recompute::none,
               bool splits = false) {
  exec::Context context({.threads = 1});
  graph::Graph const model = loss_of<Loss>(config);
  graph::State whole(model);
  whole.initialise(5);
  Runs reference(context, graph::grad(model), whole);
  parallel::PipelineCut const cut(model, stages);
  List<std::string> names;
  for (graph::Parameter const& parameter : model.parameters) names.push_back(std::string(model.name(parameter.node)));

  double furthest = 0;
  auto const differ = [&](double a, double b) {
    if (!(std::abs(a - b) <= furthest)) furthest = std::abs(a - b);
  };
  std::vector<graph::State> states(static_cast<std::size_t>(stages));
  std::vector<std::array<std::unique_ptr<Runs>, 4>> programs(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    auto const n = static_cast<std::size_t>(s);
    parallel::StageGraphs const graphs =
        parallel::stage_graphs(cut.part(s), {.trained = names, .share = 0.5, .recompute = recompute, .splits = splits});
    states[n].add(cut.part(s));
    for (graph::Parameter const& parameter : model.parameters) {
      if (!cut.has(parameter, s)) continue;
      graph::Field& mine = states[n].at(model.name(parameter.node));
      graph::Field const& all = whole.at(model.name(parameter.node));
      auto const bytes = static_cast<std::size_t>(mine.bytes());
      std::memcpy(mine.data(), static_cast<std::byte*>(all.data()) + (cut.divided(parameter) ? bytes * n : 0), bytes);
    }
    int i = 0;
    for (graph::Graph const* graph : {&graphs.forward, &graphs.first_backward, &graphs.backward, &graphs.inputs})
      if (auto& program = programs[n][static_cast<std::size_t>(i++)]; !graph->updates.empty() || i == 1)
        program = std::make_unique<Runs>(context, *graph, states[n]);
  }
  double loss = 0, expected_loss = 0;
  std::vector<std::vector<double>> expected(names.size());
  for (int batch : {0, 1}) {
    reference(batch);
    expected_loss += 0.5 * reference.executor->value("loss");
    for (std::size_t i = 0; i < names.size(); ++i) {
      auto const gradient = reference.executor->template output<float>("gradient." + names[i]).elements();
      expected[i].resize(gradient.size());
      for (std::size_t k = 0; k < gradient.size(); ++k) expected[i][k] += 0.5 * double{gradient[k]};
    }
    for (std::size_t s = 0; s < states.size(); ++s) {
      if (s > 0) copy_field(states[s - 1], states[s], "pipeline.output.0", "pipeline.input.0");
      (*programs[s][0])(batch);
    }
    loss += programs.back()[0]->executor->value("loss");
    for (std::size_t s = states.size(); s-- > 0;) {
      if (s + 1 < states.size())
        copy_field(states[s + 1], states[s], "pipeline.input_gradient.0", "pipeline.gradient.0");
      if (programs[s][3]) (*programs[s][3])(batch);  // all of these, then the weights
      else if (!splits) (*programs[s][batch == 0 ? 1 : 2])(batch);
    }
    for (std::size_t s = 0; s < states.size() && splits; ++s) (*programs[s][batch == 0 ? 1 : 2])(batch);
  }
  differ(loss, expected_loss);
  for (std::size_t i = 0; i < names.size(); ++i) {
    graph::Parameter const parameter = model.parameters[i];
    std::vector<double> sum(expected[i].size(), 0.0);
    for (int s = 0; s < stages; ++s) {
      if (!cut.has(parameter, s)) continue;
      auto const part = states[static_cast<std::size_t>(s)]["accumulated." + names[i]].elements();
      std::size_t const first = cut.divided(parameter) ? part.size() * static_cast<std::size_t>(s) : 0;
      for (std::size_t k = 0; k < part.size(); ++k) sum[first + k] += double{part[k]};
    }
    for (std::size_t k = 0; k < sum.size(); ++k) differ(sum[k], expected[i][k]);
  }
  return furthest;
}

graph::Parameter parameter_of(graph::Graph const& model, std::string_view name) {
  for (graph::Parameter const& parameter : model.parameters)
    if (model.name(parameter.node) == name) return parameter;
  return {};
}

}  // namespace

TEST_CASE("stages have the gradients of the uncut graph, summed over micro-batches") {
  for (int stages : {1, 2, 4}) {
    INFO(stages << " stages");
    CHECK(compare<nn::Gpt2Loss>(gpt2, stages) < 2e-6);
    CHECK(compare<nn::LlamaLoss>(llama, stages) < 2e-6);
    CHECK(compare<MlpLoss>({}, stages) < 2e-6);
  }
  CHECK(compare<nn::Gpt2Loss>(gpt2, 2, graph::Recompute::block) < 2e-6);
  CHECK(compare<nn::LlamaLoss>(llama, 4, graph::Recompute::pointwise) < 2e-6);
}

TEST_CASE("a backward pass in two halves has them too; the first half does no product of weights") {
  for (int stages : {2, 4}) {
    INFO(stages << " stages");
    CHECK(compare<nn::Gpt2Loss>(gpt2, stages, graph::Recompute::none, true) < 2e-6);
    CHECK(compare<nn::LlamaLoss>(llama, stages, graph::Recompute::none, true) < 2e-6);
    CHECK(compare<MlpLoss>({}, stages, graph::Recompute::none, true) < 2e-6);
  }
  CHECK(compare<nn::Gpt2Loss>(gpt2, 2, graph::Recompute::block, true) < 2e-6);

  graph::Graph const model = loss_of<nn::Gpt2Loss>(gpt2);
  List<std::string> names;
  for (graph::Parameter const& parameter : model.parameters) names.push_back(std::string(model.name(parameter.node)));
  auto const products = [](graph::Graph const& graph) {
    std::int64_t count = 0;
    auto const add = [&](graph::Graph const& of, std::int64_t times, auto const& self) -> void {
      for (graph::Id id = 0; id < of.size(); ++id) {
        if (of.op(id) == graph::Op::dot_general || of.op(id) == graph::Op::linear) count += times;
        if (of.op(id) == graph::Op::repeat) self(of.body(id), times * graph::repeat_shape(of, id).length, self);
      }
    };
    add(graph, 1, add);
    return count;
  };
  parallel::PipelineCut const cut(model, 2);
  for (int part : {0, 1}) {
    parallel::StageGraphs const whole = parallel::stage_graphs(cut.part(part), {.trained = names});
    parallel::StageGraphs const halves = parallel::stage_graphs(cut.part(part), {.trained = names, .splits = true});
    CHECK(products(halves.inputs) + products(halves.backward) == products(whole.backward));
    CHECK(products(halves.inputs) == (part == 0 ? 0 : products(whole.backward) / 2));
  }
}

TEST_CASE("a stage has its layers, and what it reads; tied embeddings stand on the first and the last") {
  graph::Graph const model = loss_of<nn::Gpt2Loss>(gpt2);
  parallel::PipelineCut const cut(model, 4);
  CHECK(cut.layers() == 4);
  CHECK(cut.owners(parameter_of(model, "wte")) == List<int>{0, 3});
  CHECK(cut.owners(parameter_of(model, "wpe")) == List<int>{0});
  CHECK(cut.owners(parameter_of(model, "ln_f.weight")) == List<int>{3});
  graph::Parameter const weight = parameter_of(model, "blocks.fc.weight");
  CHECK(cut.divided(weight));
  CHECK(cut.owners(weight).empty());
  CHECK(cut.shape_on(weight, 2)[0] == 1);
  CHECK(cut.part(1).inputs.empty());

  graph::Graph const mlp = loss_of<MlpLoss>({});
  parallel::PipelineCut const own(mlp, 2);
  CHECK(own.owners(parameter_of(mlp, "shift")) == List<int>{0, 1});
  CHECK(own.owners(parameter_of(mlp, "table")) == List<int>{0, 1});  // the head reads embeddings again

  parallel::StageWishes wishes{.trained = {std::string("blocks.fc.weight")}};
  parallel::StageGraphs const kept = parallel::stage_graphs(cut.part(1), wishes);
  wishes.recompute = graph::Recompute::block;
  parallel::StageGraphs const again = parallel::stage_graphs(cut.part(1), wishes);
  CHECK(again.kept_bytes < kept.kept_bytes / 4);
}

TEST_CASE("a stage with several parts has their layers, and layers are cut as one says") {
  graph::Graph const model = loss_of<nn::Gpt2Loss>(gpt2);
  graph::Parameter const weight = parameter_of(model, "blocks.fc.weight");
  parallel::PipelineCut const parts(model, {.stages = 2, .virtual_stages = 2});
  CHECK(parts.parts() == 4);
  CHECK(parts.owners(parameter_of(model, "wte")) == List<int>{0, 1});
  CHECK(parts.shape_on(weight, 1)[0] == 2);
  CHECK(parts.first_layer(3) == 3);
  CHECK(parts.layer_on_stage(3) == 1);
  CHECK(parts.reads(parameter_of(model, "wpe").node, 0));
  CHECK(!parts.reads(parameter_of(model, "wpe").node, 2));

  parallel::PipelineCut const uneven(model, {.stages = 3, .layers = {2, 1, 1}});
  CHECK(uneven.shape_on(weight, 0)[0] == 2);
  CHECK(uneven.first_layer(2) == 3);
  char const* const said = "the 4 layers of the model do not divide among 2 stages as said, of which each has at least "
                           "one: say 2 numbers that add up to 4";
  for (List<std::int64_t> const& layers : {List<std::int64_t>{4, 1}, {4, 0}, {4}, {1, 2, 1}})
    REQUIRE_ERROR(parallel::PipelineCut(model, {.stages = 2, .layers = layers}), ErrorKind::configuration, said);
  REQUIRE_ERROR(parallel::PipelineCut(model, {.stages = 2, .virtual_stages = 3}), ErrorKind::configuration,
                "do not divide among 2 stages with 3 parts each, which are 6. Use as many parts as one of 1, 2, 4");
}

TEST_CASE("layers are balanced by the work of the head") {
  using Layers = List<std::int64_t>;
  CHECK(parallel::balanced_layers({.stages = 4}, 12, 0) == Layers{3, 3, 3, 3});
  CHECK(parallel::balanced_layers({.stages = 4}, 12, 2) == Layers{4, 4, 3, 1});
  CHECK(parallel::balanced_layers({.stages = 4}, 12, 1) == Layers{4, 3, 3, 2});
  CHECK(parallel::balanced_layers({.stages = 2}, 4, 9) == Layers{3, 1});
  CHECK(parallel::balanced_layers({.stages = 2, .virtual_stages = 2}, 8, 2) == Layers{3, 2, 2, 1});
  nn::Gpt2Config wide = gpt2;
  wide.vocabulary = wide.padded_vocabulary = 256;  // the head: 8 x 256, a layer: 12 x 8 x 8
  parallel::PipelineLayout const found =
      parallel::balanced({.stages = 2, .balanced = true}, loss_of<nn::Gpt2Loss>(wide));
  CHECK(found.layers == Layers{3, 1});
  CHECK(parallel::balanced({.stages = 2}, loss_of<nn::Gpt2Loss>(wide)).layers.empty());
}

TEST_CASE("what cannot be cut says why") {
  graph::Graph const model = loss_of<nn::Gpt2Loss>(gpt2);
  REQUIRE_ERROR(parallel::PipelineCut(model, 3), ErrorKind::configuration,
                "the 4 layers of the model do not divide among 3 stages. Use one of 1, 2, 4, or say how many layers "
                "each stage has");
  graph::Builder flat;
  flat.output("loss", sum_all(flat.parameter("w", {3}, graph::zeros())));
  REQUIRE_ERROR(parallel::PipelineCut(flat.graph(), 2), ErrorKind::unavailable, "has no loop over a Stack of layers");
  graph::Builder counting;
  graph::Var const still = counting.parameter("w", {3}, graph::zeros()), n = counting.state("n", {});
  counting.update(n, n + 1.0);
  counting.output("loss", sum_all(still));
  REQUIRE_ERROR(parallel::PipelineCut(counting.graph(), 2), ErrorKind::unavailable, "the loss updates a state, 'n'");

  for (bool reversed : {false, true}) {
    graph::Builder b;
    graph::Var const w = b.parameter("w", {4, 3}, graph::zeros(), true), x = b.parameter("x", {3}, graph::zeros());
    graph::Scanned const scanned = graph::scan({x}, {w}, [](auto const& carried, auto const& layer) {
      graph::Var const next = carried[0] * layer[0];
      return graph::ScanStep{{next}, {next}};
    }, reversed);
    b.output("loss", sum_all(reversed ? scanned.carried[0] : scanned.outputs[0]));
    REQUIRE_ERROR(parallel::PipelineCut(b.graph(), 2), ErrorKind::unavailable,
                  reversed ? "goes from the last one back" : "gives the loss values of every layer");
  }
}
