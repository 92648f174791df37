// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/grad_repeat.hpp>
// The layer loop against its unrolled form, forwards and backwards.

#include <tutti/graph/check.hpp>
#include <tutti/graph/repeat.hpp>

#include "model.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

namespace {

struct Layer {
  BOOST_HANA_DEFINE_STRUCT(Layer, (Param, weight), (Param, bias));
};
struct Model {
  BOOST_HANA_DEFINE_STRUCT(Model, (Stack<Layer>, layers), (Param, shared));
};
Model model(std::int64_t length) { return {{{{{3, 3}, normal(1)}, {{3}, zeros()}}, length}, {{3}, ones()}}; }

/// What one layer does; `shared` is a value of the outer graph.
Var layer(Var weight, Var bias, Var shared, Var h) { return tanh(linear(h, weight, bias)) * shared + h; }

Graph rolled(std::int64_t length, Replication batch = Replication::replicated) {
  return trace(model(length), [&](Builder& b, Model const& p) {
    Var x = b.input("x", DType::float32, {2, 3}, batch);
    x = repeat(p.layers, x, [&](Layer const& q, Var h) { return layer(q.weight, q.bias, exp(p.shared), h); });
    b.output("loss", sum_all(x * x));
  });
}
Graph unrolled(std::int64_t length) {
  return trace(model(length), [&](Builder& b, Model const& p) {
    Var x = b.input("x", DType::float32, {2, 3});
    Var const weight = p.layers.block.weight, bias = p.layers.block.bias;
    for (std::int64_t i = 0; i < length; ++i)
      x = layer(reshape(slice(weight, {i, 0, 0}, {i + 1, 3, 3}), {3, 3}), reshape(slice(bias, {i, 0}, {i + 1, 3}), {3}),
                exp(p.shared), x);
    b.output("loss", sum_all(x * x));
  });
}

int count(Graph const& graph, Op op) {
  int n = 0;
  for (Id id = 0; id < graph.size(); ++id) n += graph.op(id) == op;
  return n;
}
Id find(Graph const& graph, Op op, int which = 0) {
  for (Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == op && which-- == 0) return id;
  return none;
}

}  // namespace

TEST_CASE("repeat computes and differentiates as the unrolled loop, for 0, 1, 2 and 3 iterations") {
  for (std::int64_t length : {0, 1, 2, 3}) {
    INFO("length " << length);
    Interpreter a(grad(rolled(length))), b(grad(unrolled(length)));
    randomise(a, {});
    for (auto name : {"x", "layers.weight", "layers.bias", "shared"}) b.set(name, a.get(name));
    a.run();
    b.run();
    for (auto name : {"loss", "gradient.layers.weight", "gradient.layers.bias", "gradient.shared"}) {
      naive::Values const &x = a.output(name), &y = b.output(name);
      REQUIRE(x.size() == y.size());
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) <= 1e-12 * (1 + std::abs(y[i])));
    }
  }
}

TEST_CASE("gradients through repeat agree with central differences, of a value used in the body too") {
  for (std::int64_t length : {1, 3}) {
    GradientCheck const result = check_gradients(rolled(length), {.samples = 9});
    INFO(result.where);
    CHECK(result.worst < 1e-6);
  }
  GradientCheck const ranks = check_gradients(rolled(2, Replication::varying), {.samples = 9}, {}, 3);
  INFO(ranks.where);
  CHECK(ranks.worst < 1e-6);
}

TEST_CASE("a repeat within a repeat differentiates") {
  struct Inner {
    BOOST_HANA_DEFINE_STRUCT(Inner, (Param, weight));
  };
  Builder b;
  Var const outer = b.parameter("outer", {2, 3}, zeros()), inner = b.parameter("inner", {2, 3}, zeros());
  Var const x = b.parameter("x", {3}, zeros());
  RepeatTrace loop(b, x, 2, Where::current());
  Var const scale = loop.slice(outer, "scale");
  Stack<Inner> const blocks{{Param{{3}, zeros(), inner}}, 2};
  Var const next =
      repeat(blocks, loop.carried(), [&](Inner const& q, Var h) { return tanh(h * q.weight + scale) + h; });
  b.output("loss", sum_all(loop.finish(next * scale)));
  Graph const graph = canonical(b.graph());
  CHECK(count(graph.body(find(graph, Op::repeat)), Op::repeat) == 1);
  GradientCheck const result = check_gradients(graph, {.samples = 6});
  INFO(result.where);
  CHECK(result.worst < 1e-6);
}

TEST_CASE(
    "a GPT's gradients agree with central differences, with tied embeddings, on one rank and averaged over three") {
  for (std::int64_t layers : {1, 3}) {
    GradientCheck const result = check_gradients(test::gpt_loss(layers), {.integers = 7});
    INFO(result.where);
    CHECK(result.worst < 1e-6);
    CHECK(result.tried == 16 * 6);
  }
  GradientCheck const result = check_gradients(test::gpt_loss(2, Replication::varying), {.integers = 7}, {}, 3);
  INFO(result.where);
  CHECK(result.worst < 1e-6);
}

TEST_CASE("the body is traced once: the graph does not grow with the number of layers") {
  Graph const few = grad(test::gpt_loss(1)), many = grad(test::gpt_loss(48));
  CHECK(few.size() == many.size());
  CHECK(count(many, Op::repeat) == 2);
  int calls = 0;
  Builder b;
  Model const p = bind(b, model(5));
  static_cast<void>(repeat(p.layers, b.input("x", DType::float32, {2, 3}), [&](Layer const& q, Var h) {
    ++calls;
    return layer(q.weight, q.bias, p.shared, h);
  }));
  CHECK(calls == 1);
}

TEST_CASE(
    "the forward loop keeps what the backward loop reads and nothing else, and the backward loop runs the other way") {
  Graph const graph = grad(rolled(3));
  Id const forward = find(graph, Op::repeat), backward = find(graph, Op::repeat, 1);
  CHECK_FALSE(repeat_shape(graph, forward).reversed);
  CHECK(repeat_shape(graph, backward).reversed);
  CHECK(repeat_shape(graph, backward).carried == 2);  // the cotangent, and the sum for the shared value
  // Kept: the value going in (for the weight's gradient) and the tanh. The linear's result is read by nobody.
  CHECK(graph.results(forward) == 3);
  Graph const plain = rolled(3);
  CHECK(plain.results(find(plain, Op::repeat)) == 1);
}

TEST_CASE(
    "with varying inputs each layer's gradient is reduced inside the backward loop, tied parameters once outside") {
  Graph const graph = grad(test::gpt_loss(2, Replication::varying));
  CHECK(count(graph.body(find(graph, Op::repeat, 1)), Op::all_reduce) == 12);
  CHECK(count(graph, Op::all_reduce) == 4);  // wte once for both uses, wpe, ln_f
  CHECK(count(graph.body(find(graph, Op::repeat)), Op::all_reduce) == 0);
  for (Output const& output : graph.outputs)
    if (graph.text_of(output.name) != "loss") CHECK(graph.replication(output.node) == Replication::replicated);
}

TEST_CASE("mistakes in a body are named") {
  Builder b;
  Model const p = bind(b, model(3));
  Var const x = b.input("x", DType::float32, {2, 3});
  REQUIRE_ERROR(repeat(p.layers, x, [](Layer const&, Var h) { return reduce_sum(h, {0}); }), ErrorKind::shape,
                "the body must return a value of the shape that it takes (shapes here: (2, 3) and (3,))");
  REQUIRE_ERROR(repeat(p.layers, x, [](Layer const&, Var h) { return convert(h, DType::float64); }), ErrorKind::dtype,
                "dtype that it takes");
  Stack<Layer> wrong = p.layers;
  wrong.length = 4;
  REQUIRE_ERROR(repeat(wrong, x, [](Layer const&, Var h) { return h; }), ErrorKind::shape, "one element per iteration");
  Var escaped;
  static_cast<void>(repeat(p.layers, x, [&](Layer const&, Var h) { return escaped = h * 2; }));
  Builder other;
  Var const y = other.input("y", DType::float32, {2, 3});
  REQUIRE_ERROR(x + y, ErrorKind::invalid_argument, "belongs to another graph");
  Var const own = b.input("own", DType::float32, {2, 3}, Replication::varying);
  REQUIRE_ERROR(repeat(p.layers, x, [&](Layer const&, Var h) { return h + own; }), ErrorKind::communication,
                "is not replicated as its argument is");
}
