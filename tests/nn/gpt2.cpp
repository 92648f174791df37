// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/nn/layers.hpp> <tutti/nn/gpt2_state.hpp>
#include "support/catch.hpp"

#include <tutti/graph/check.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::nn;

namespace {

constexpr Gpt2Config tiny{
    .layers = 2, .heads = 2, .channels = 8, .vocabulary = 11, .padded_vocabulary = 16, .max_tokens = 5};

constexpr graph::Graph loss_graph(Gpt2Config const& config) {
  return graph::trace(make_parameters(config), [](graph::Builder& builder, Gpt2 const& p) {
    graph::Var const tokens = builder.input("tokens", DType::int32, {2, 4});
    graph::Var const targets = builder.input("targets", DType::int32, {2, 4});
    builder.output("loss", Gpt2Loss{}(p, tokens, targets));
  });
}

static_assert(loss_graph(tiny).parameters.size() == 16, "GPT-2 can be traced in a constant expression");

}  // namespace

TEST_CASE("the struct declares llm.c's sixteen tensors: names, order, shapes, stacks, initial values") {
  graph::Graph const graph = loss_graph(tiny);
  REQUIRE(graph.parameters.size() == gpt2_tensors.size());
  for (std::size_t i = 0; i < gpt2_tensors.size(); ++i) {
    graph::Parameter const& parameter = graph.parameters[i];
    INFO(gpt2_tensors[i].name);
    CHECK(graph.name(parameter.node) == gpt2_tensors[i].name);
    CHECK(graph.shape(parameter.node) == gpt2_shape(tiny, i));
    CHECK(parameter.stacked == gpt2_tensors[i].stacked);
    switch (gpt2_tensors[i].initial) {
      case Gpt2Initial::zeros: CHECK(parameter.init == graph::zeros()); break;
      case Gpt2Initial::ones: CHECK(parameter.init == graph::ones()); break;
      case Gpt2Initial::normal: CHECK(parameter.init == graph::normal(0.02)); break;
      case Gpt2Initial::normal_residual: CHECK(parameter.init.deviation == Approx(0.01)); break;  // 0.02 / sqrt(2 * 2)
    }
  }
  CHECK(graph::parameter_count(make_parameters(tiny)) == parameter_count(tiny));
}

TEST_CASE("an RMS norm has one weight, which starts at one, and its epsilon") {
  graph::Graph const graph = graph::trace(rms_norm_of(8, 1e-6), [](graph::Builder& builder, RmsNorm const& norm) {
    builder.output("y", norm(builder.input("x", DType::float32, {3, 8})));
  });
  REQUIRE(graph.parameters.size() == 1);
  CHECK(graph.name(graph.parameters[0].node) == "weight");
  CHECK(graph.shape(graph.parameters[0].node) == Shape{8});
  CHECK(graph.parameters[0].init == graph::ones());
  graph::Interpreter run(graph);
  run.set("weight", std::vector<double>(8, 2.0));
  run.set("x", std::vector<double>(24, 0.5));
  run.run();
  for (double y : run.output("y")) CHECK(y == Approx(2 * 0.5 / std::sqrt(0.25 + 1e-6)));
}

TEST_CASE("depth does not change the graph: the layer loop is one node") {
  Gpt2Config deep = tiny;
  deep.layers = 12;
  CHECK(loss_graph(deep).nodes.size() == loss_graph(tiny).nodes.size());
}

TEST_CASE("a model without information loses log of the vocabulary, padding rows not counted") {
  graph::Interpreter run(loss_graph(tiny));  // all matrices zero: logits are zero
  run.set("tokens", {1, 2, 3, 4, 5, 6, 7, 8});
  run.set("targets", {0, 1, 2, 3, 10, 9, -1, 7});
  run.run();
  CHECK(run.output("loss")[0] == Approx(std::log(11.0)));
}

TEST_CASE("gradients of every parameter agree with central differences, an ignored target and the tied head included") {
  graph::GradientCheck const check =
      graph::check_gradients(loss_graph(tiny), {.samples = 8},
                             {{"tokens", {1, 2, 3, 4, 5, 6, 7, 8}}, {"targets", {0, 1, 2, 3, 10, 9, -1, 7}}});
  INFO(check.where);
  CHECK(check.tried >= 16 * 8 - 16);
  CHECK(check.worst < 1e-6);
}

TEST_CASE("a state starts with llm.c's weights and hands out the sixteen tensors") {
  graph::State state(loss_graph(tiny));
  initialise_parameters(tiny, state, 42);
  std::vector<std::vector<float>> expected;
  std::array<float*, 16> data{};
  for (std::size_t i = 0; i < 16; ++i) {
    expected.emplace_back(static_cast<std::size_t>(gpt2_shape(tiny, i).size()));
    data[i] = expected[i].data();
  }
  initialise_gpt2(tiny, data, 42);
  Gpt2Weights const weights = gpt2_weights(tiny, state);
  for (std::size_t i = 0; i < 16; ++i) CHECK(std::equal(expected[i].begin(), expected[i].end(), weights.data[i]));
  graph::State empty;
  REQUIRE_ERROR(gpt2_weights(tiny, empty), ErrorKind::invalid_argument, "wte");
}

TEST_CASE("impossible sizes are refused before anything is traced") {
  Gpt2Config bad = tiny;
  bad.heads = 3;
  REQUIRE_ERROR(make_parameters(bad), ErrorKind::configuration, "multiple of heads 3");
}
