// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Softmax and its relatives, reductions that keep their axes, and layers in vectors.
// Covers: <tutti/graph/probabilities.hpp>
#include "support/catch.hpp"

#include <tutti/graph/check.hpp>
#include <tutti/graph/probabilities.hpp>
#include <tutti/nn/layers.hpp>

#include <array>
#include <cmath>
#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// The output "y" of what f makes of the parameter x with these values.
template <class F>
naive::Values run(naive::Values const& values, F&& f, Shape const& shape = {2, 3, 4}) {
  Builder b;
  b.output("y", f(b.parameter("x", shape, zeros())));
  Interpreter interpreter(canonical(b.graph()));
  interpreter.set("x", values);
  interpreter.run();
  return interpreter.output("y");
}
naive::Values numbers(std::size_t count, double scale = 1) {
  naive::Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * std::sin(3.0 * static_cast<double>(i) + 1);
  return values;
}
double worst_gradient(Var loss) {
  loss.builder->output("loss", loss);
  return check_gradients(canonical(loss.builder->graph())).worst;
}

using Norms = std::array<nn::LayerNorm, 2>;
struct Mixed {
  BOOST_HANA_DEFINE_STRUCT(Mixed, (std::vector<nn::Linear>, hidden), (Norms, norms), (nn::Embedding, rows),
                           (std::vector<int>, sizes));
};

}  // namespace

TEST_CASE("softmax, its logarithm and log_sum_exp agree with sums in double along every axis") {
  naive::Values const x = numbers(24, 5);
  for (int axis : {0, 1, 2, -1, -3}) {
    CAPTURE(axis);
    std::size_t const extents[] = {2, 3, 4}, at = static_cast<std::size_t>(axis < 0 ? axis + 3 : axis);
    std::size_t const stride = at == 0 ? 12 : at == 1 ? 4 : 1, extent = extents[at];
    naive::Values const soft = run(x, [&](Var v) { return softmax(v, axis); });
    naive::Values const logs = run(x, [&](Var v) { return log_softmax(v, axis); });
    naive::Values const sums = run(x, [&](Var v) {
      return broadcast_to(log_sum_exp(v, axis, KeepAxes::yes), v.shape());
    });
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::size_t const first = i - i / stride % extent * stride;
      double sum = 0;
      for (std::size_t k = 0; k < extent; ++k) sum += std::exp(x[first + k * stride]);
      CHECK(std::abs(soft[i] - std::exp(x[i]) / sum) < 1e-12);
      CHECK(std::abs(logs[i] - (x[i] - std::log(sum))) < 1e-12);
      CHECK(std::abs(sums[i] - std::log(sum)) < 1e-12);
    }
  }
}

TEST_CASE("softmax of huge numbers neither overflows nor loses the smallest logarithm") {
  naive::Values const x{1000, -1000, 999, 0};
  naive::Values const soft = run(x, [](Var v) { return softmax(v); }, {4});
  naive::Values const logs = run(x, [](Var v) { return log_softmax(v); }, {4});
  CHECK(std::abs(soft[0] - 1 / (1 + std::exp(-1.0))) < 1e-12);
  CHECK(soft[1] == 0);
  CHECK(std::abs(logs[1] - (-2000 - std::log1p(std::exp(-1.0)))) < 1e-9);
}

TEST_CASE("softmax and its relatives have the gradients of their definitions, twice") {
  Builder b;
  Var const x = b.parameter("x", {2, 3, 4}, zeros()), w = b.parameter("w", {2, 3, 4}, zeros());
  SECTION("softmax") { CHECK(worst_gradient(sum_all(softmax(x, 1) * w)) < 1e-6); }
  SECTION("log_softmax") { CHECK(worst_gradient(sum_all(log_softmax(x) * w)) < 1e-6); }
  SECTION("log_sum_exp") { CHECK(worst_gradient(sum_all(log_sum_exp(x, 0) * reduce_mean(w, {0}))) < 1e-6); }
  SECTION("a second time") {
    List<Var> const first = gradients(sum_all(log_softmax(x) * w), {x});
    CHECK(worst_gradient(sum_all(first[0] * first[0])) < 1e-5);
  }
}

TEST_CASE("reductions take axes in any order and from the end, and keep them when asked") {
  naive::Values const x = numbers(24);
  auto const shape_of = [](auto f) {
    Builder b;
    return f(b.parameter("x", {2, 3, 4}, zeros())).shape();
  };
  CHECK(shape_of([](Var v) { return reduce_sum(v, {-1, 0}); }) == Shape{3});
  CHECK(shape_of([](Var v) { return reduce_sum(v, {2, 0}, KeepAxes::yes); }) == Shape{1, 3, 1});
  CHECK(shape_of([](Var v) { return reduce_max(v, {-2}, KeepAxes::yes); }) == Shape{2, 1, 4});
  CHECK(run(x, [](Var v) { return reduce_sum(v, {2, 0}); }) == run(x, [](Var v) { return reduce_sum(v, {0, 2}); }));
  naive::Values const mean = run(x, [](Var v) { return reduce_mean(v, {2, 0}); });
  for (std::size_t j = 0; j < 3; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t k = 0; k < 4; ++k) sum += x[i * 12 + j * 4 + k];
    CHECK(std::abs(mean[j] - sum / 8) < 1e-12);
  }
  Builder b;
  Var const v = b.parameter("x", {2, 3}, zeros());
  REQUIRE_ERROR(reduce_sum(v, {1, -1}), ErrorKind::shape, "every axis must stand once");
  REQUIRE_ERROR(reduce_mean(v, {2}), ErrorKind::shape, "every axis must stand once and be below the rank");
}

TEST_CASE("functions made of several operations refuse in their own names") {
  Builder b;
  Var const v = b.parameter("x", {2, 3}, zeros()), i = b.input("i", DType::int32, {2, 3});
  auto const told = [](char const* name, auto f) {
    CAPTURE(name);
    REQUIRE_ERROR(f(), ErrorKind::shape, std::string("tutti::") + name + ": every axis must stand once");
  };
  told("reduce_mean", [&] { return reduce_mean(v, {2}); });
  told("reduce_mean", [&] { return reduce_mean(v, {0, -2}, KeepAxes::yes); });
  told("softmax", [&] { return softmax(v, -3); });
  told("log_softmax", [&] { return log_softmax(v, 2); });
  told("log_sum_exp", [&] { return log_sum_exp(v, 7); });
  REQUIRE_ERROR(softmax(i), ErrorKind::dtype, "tutti::softmax: the operand must be of a floating type");
  REQUIRE_ERROR(log_softmax(i), ErrorKind::dtype, "tutti::log_softmax: the operand must be of a floating type");
  REQUIRE_ERROR(reduce_mean(i, {0}), ErrorKind::dtype, "tutti::reduce_mean: the operand must be of a floating type");
  REQUIRE_ERROR(mean_all(i), ErrorKind::dtype, "tutti::mean_all: the operand must be of a floating type");
}

TEST_CASE("an embedding takes tokens of any shape, with the gradients of each") {
  nn::Embedding const table = nn::embedding_of(5, 3);
  for (Shape const& shape : {Shape{}, Shape{4}, Shape{2, 3}, Shape{2, 1, 3}, Shape{0, 2, 2}}) {
    CAPTURE(to_string(shape));
    Graph const graph = trace(table, [&](Builder& b, nn::Embedding const& m) {
      Var const rows = m(b.input("tokens", DType::int32, shape));
      CHECK(rows.shape() == appended(shape, 3));
      b.output("rows", rows);
      b.output("loss", sum_all(rows * rows * rows));
    });
    CHECK(check_gradients(graph, {.integers = 5}).worst < 1e-5);
    Interpreter interpreter(graph);
    naive::Values tokens(static_cast<std::size_t>(shape.size())), weight = numbers(15), expected;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<double>((i * 3 + 1) % 5);
      for (std::size_t k = 0; k < 3; ++k) expected.push_back(weight[(i * 3 + 1) % 5 * 3 + k]);
    }
    interpreter.set("weight", weight);
    interpreter.set("tokens", tokens);
    interpreter.run();
    CHECK(interpreter.output("rows") == expected);
  }
  Builder b;
  Var const rows = b.parameter("table", {5, 3}, zeros()), positions = b.parameter("positions", {4, 3}, zeros());
  CHECK(embed(rows, positions, b.input("one", DType::int32, {4})).shape() == Shape{4, 3});
  CHECK(embed(rows, positions, b.input("more", DType::int32, {2, 2, 3})).shape() == Shape{2, 2, 3, 3});
  REQUIRE_ERROR(embed(rows, positions, b.input("none", DType::int32, {})), ErrorKind::shape,
                "tokens must have shape (B, T), or (..., T) in embed");
  REQUIRE_ERROR(embed(rows, positions, b.input("long", DType::int32, {5})), ErrorKind::shape,
                "positions must have shape (T or more, C)");
}

TEST_CASE("the losses of tokens can be weighed one by one") {
  Builder b;
  Var const logits = b.parameter("logits", {2, 3, 5}, zeros());
  Var const targets = b.input("targets", DType::int32, {2, 3}), weights = b.input("weights", DType::float32, {2, 3});
  Losses const losses = cross_entropy_losses(logits, targets);
  Var const loss = sum_all(losses.tokens * weights) / sum_all(weights);
  b.output("mean", losses.mean - mean_all(losses.tokens));
  b.output("loss", loss);
  Graph const graph = canonical(b.graph());
  CHECK(check_gradients(graph, {.integers = 5}).worst < 1e-5);
  Interpreter interpreter(graph);
  naive::Values const x = numbers(30);
  interpreter.set("logits", x);
  interpreter.set("targets", {0, 1, 2, 3, 4, 0});
  interpreter.set("weights", {0, 0, 3, 0, 0, 0});  // the third token alone counts
  interpreter.run();
  double sum = 0;
  for (std::size_t k = 10; k < 15; ++k) sum += std::exp(x[k]);
  CHECK(std::abs(interpreter.output("loss")[0] - (std::log(sum) - x[12])) < 1e-12);
  CHECK(std::abs(interpreter.output("mean")[0]) < 1e-12);
}

TEST_CASE("one_hot has a row for every integer, and none for what is no class") {
  Builder b;
  b.output("y", one_hot(b.input("i", DType::int32, {2, 2}), 3));
  Interpreter interpreter(canonical(b.graph()));
  interpreter.set("i", {0, 2, 1, -1});
  interpreter.run();
  CHECK(interpreter.output("y") == naive::Values{1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0});
  Builder c;
  REQUIRE_ERROR(one_hot(c.input("x", DType::float32, {2}), 3), ErrorKind::dtype, "indices must be integers");
  REQUIRE_ERROR(one_hot(c.input("i", DType::int32, {2}), 0), ErrorKind::invalid_argument, "at least one class");
}

TEST_CASE("a stack inside of a stack is refused") {
  struct Inner {
    BOOST_HANA_DEFINE_STRUCT(Inner, (Param, weight));
  };
  struct Middle {
    BOOST_HANA_DEFINE_STRUCT(Middle, (Stack<Inner>, inner));
  };
  struct Model {
    BOOST_HANA_DEFINE_STRUCT(Model, (Stack<Middle>, outer));
  };
  Model model;
  model.outer.length = 3;
  model.outer.block.inner = {{Param{{3}, zeros()}}, 3};
  REQUIRE_ERROR(trace(model, [](Builder&, Model const&) {}), ErrorKind::invalid_argument,
                "'outer.inner' is a Stack inside of a Stack");
}

TEST_CASE("layers in a vector and in an array are parameters under their numbers") {
  Mixed model;
  model.hidden = {nn::linear_of(6, 4, 0.1), nn::linear_of(4, 4, 0.1), nn::linear_of(4, 4, 0.1, false)};
  model.norms.fill(nn::layer_norm_of(4));
  model.rows = nn::embedding_of(5, 6);
  Graph const graph = trace(model, [](Builder& b, Mixed const& m) {
    Var x = m.rows(b.input("tokens", DType::int32, {2, 3}));
    for (nn::Linear const& layer : m.hidden) x = tanh(layer(x));
    for (nn::LayerNorm const& norm : m.norms) x = norm(x) * x;
    b.output("loss", mean_all(x));
  });
  std::vector<std::string> names;
  for (Parameter const& parameter : graph.parameters) names.emplace_back(graph.name(parameter.node));
  CHECK(names == std::vector<std::string>{"hidden.0.weight", "hidden.0.bias", "hidden.1.weight", "hidden.1.bias",
                                          "hidden.2.weight", "norms.0.weight", "norms.0.bias", "norms.1.weight",
                                          "norms.1.bias", "rows.weight"});
  CHECK(check_gradients(graph, {.integers = 5}).worst < 1e-5);
}
