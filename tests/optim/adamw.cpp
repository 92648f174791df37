// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/optim/adamw.hpp>
#include "support/catch.hpp"

#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/optim/minimise.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::optim;
using graph::Var;
using Values = std::vector<double>;

namespace {

struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (graph::Param, matrix), (graph::Param, bias));
};
constexpr Model model{{{2, 3}, graph::ones()}, {{3}, graph::zeros()}};

/// loss = sum of matrix * x + bias^2 * 3: gradients are x and 6 bias.
constexpr graph::Graph program(Pass pass, AdamW const& adamw, StepOptions const& options) {
  return graph::trace(model, [&](graph::Builder& builder, Model const& p) {
    Var const x = builder.input("x", DType::float32, {2, 3});
    Var const bias = p.bias;
    minimise(reduce_sum(p.matrix * x, {0, 1}) + reduce_sum(bias * bias, {0}) * 3.0, pass, adamw, options);
  });
}
constexpr AdamW adamw{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1};

/// Leaves by name, carried from program to program as a State would.
using State = std::map<std::string, Values>;
graph::Interpreter run(graph::Graph const& graph, State& state, Values const& x, double rate = 0.1, int step = 1,
                       int ranks = 1) {
  graph::Interpreter interpreter(graph, ranks);
  for (auto const& [name, values] : state)
    if (graph.find_leaf(name) != graph::none) interpreter.set(name, values);
  interpreter.set("x", x);
  if (graph.find_leaf("learning_rate") != graph::none) {
    interpreter.set("learning_rate", {rate});
    interpreter.set("correction1", {1 - std::pow(adamw.beta1, step)});
    interpreter.set("correction2", {1 - std::pow(adamw.beta2, step)});
  }
  interpreter.run();
  for (graph::Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == graph::Op::parameter || graph.op(id) == graph::Op::state)
      state[std::string(graph.name(id))] = interpreter.get(graph.name(id));
  return interpreter;
}

void expect(Values const& got, Values const& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-6));
}

Values const matrix0{1, 2, 3, 4, 5, 6}, bias0{0.5, -1, 2}, x0{1, -2, 3, 0, 0.5, -1};

/// The paper's update, element by element.
void naive_step(Values& p, Values& m, Values& v, Values const& g, double rate, int step, double decay) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g[i];
    v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g[i] * g[i];
    double const mh = m[i] / (1 - std::pow(adamw.beta1, step)), vh = v[i] / (1 - std::pow(adamw.beta2, step));
    p[i] -= rate * (mh / (std::sqrt(vh) + adamw.epsilon) + decay * p[i]);
  }
}

}  // namespace

TEST_CASE("three steps follow the paper's equations; only matrices decay") {
  graph::Graph const graph = program(Pass::whole, adamw, {});
  State state{{"matrix", matrix0}, {"bias", bias0}};
  Values p = matrix0, b = bias0, m(6), v(6), mb(3), vb(3);
  for (int step = 1; step <= 3; ++step) {
    double expected = 0, squares = 0;
    for (std::size_t i = 0; i < 6; ++i) expected += p[i] * x0[i];
    for (double value : b) expected += 3 * value * value;
    Values gb;
    for (double value : b) gb.push_back(6 * value);
    for (double value : x0) squares += value * value;
    for (double value : gb) squares += value * value;
    auto const result = run(graph, state, x0, 0.1, step);
    expect(result.output("loss"), {expected});
    expect(result.output("grad_norm"), {std::sqrt(squares)});
    naive_step(p, m, v, x0, 0.1, step, adamw.weight_decay);
    naive_step(b, mb, vb, gb, 0.1, step, 0);
    expect(state["matrix"], p);
    expect(state["bias"], b);
    expect(state["m.matrix"], m);
    expect(state["v.bias"], vb);
  }
}

TEST_CASE("a norm above the limit scales all gradients, one below changes nothing") {
  Values gb;
  for (double value : bias0) gb.push_back(6 * value);
  double squares = 0;
  for (double value : x0) squares += value * value;
  for (double value : gb) squares += value * value;
  double const norm = std::sqrt(squares);
  for (double clip : {norm / 4, norm * 4}) {
    State state{{"matrix", matrix0}, {"bias", bias0}};
    auto const result = run(program(Pass::whole, adamw, {.clip = clip}), state, x0);
    expect(result.output("grad_norm"), {norm});  // before clipping
    double const scale = std::min(1.0, clip / norm);
    Values m;
    for (double value : x0) m.push_back((1 - adamw.beta1) * value * scale);
    expect(state["m.matrix"], m);
  }
}

TEST_CASE("micro-steps average: first, middle and last make the step of the mean gradient") {
  std::vector<Values> const batches{x0, {2, 0, 0, 1, 1, 1}, {0, 0, 4, -1, 0, 2}};
  Values mean(6);
  for (Values const& x : batches)
    for (std::size_t i = 0; i < 6; ++i) mean[i] += x[i] / 3;
  State parts{{"matrix", matrix0}, {"bias", bias0}}, whole = parts;
  parts["accumulated.matrix"] = Values(6, 1e30);  // the first micro-step must not need cleared accumulators
  parts["accumulated.bias"] = Values(3, 1e30);
  parts["accumulated.loss"] = {1e30};
  StepOptions const options{.micro_steps = 3};
  run(program(Pass::first, adamw, options), parts, batches[0]);
  run(program(Pass::middle, adamw, options), parts, batches[1]);
  CHECK(parts["matrix"] == matrix0);
  auto const last = run(program(Pass::last, adamw, options), parts, batches[2]);
  auto const once = run(program(Pass::whole, adamw, {}), whole, mean);
  expect(last.output("loss"), once.output("loss"));
  expect(last.output("grad_norm"), once.output("grad_norm"));
  expect(parts["matrix"], whole["matrix"]);
  expect(parts["bias"], whole["bias"]);
}

TEST_CASE("over ranks gradients and loss are averaged before norm and clipping") {
  Values const a = x0, b{2, 0, 0, 1, 1, 1};
  Values mean(6);
  for (std::size_t i = 0; i < 6; ++i) mean[i] = (a[i] + b[i]) / 2;
  State alone{{"matrix", matrix0}, {"bias", bias0}};
  auto const once = run(program(Pass::whole, adamw, {.clip = 2}), alone, mean);
  graph::Interpreter two(program(Pass::whole, adamw, {.clip = 2, .reduce = true}), 2);
  two.set("matrix", matrix0);
  two.set("bias", bias0);
  two.set("x", a, 0);
  two.set("x", b, 1);
  two.set("learning_rate", {0.1});
  two.set("correction1", {1 - adamw.beta1});
  two.set("correction2", {1 - adamw.beta2});
  two.run();
  for (int rank : {0, 1}) {
    expect(two.output("loss", rank), once.output("loss"));
    expect(two.output("grad_norm", rank), once.output("grad_norm"));
    expect(two.get("matrix", rank), alone["matrix"]);
  }
}
