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

TEST_CASE("a stack without layers is refused where the model is traced") {
  REQUIRE_ERROR(rolled(0), ErrorKind::configuration, "'layers.weight' is in a Stack of length 0");
}

TEST_CASE("repeat computes and differentiates as the unrolled loop, for 1, 2 and 3 iterations") {
  for (std::int64_t length : {1, 2, 3}) {
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

TEST_CASE("a loop written by hand carries, slices, captures, and stacks what it keeps") {
  Builder b;
  Var const x = b.parameter("x", {2, 4}, zeros()), bias = b.parameter("bias", {4}, zeros());
  Var const weights = b.parameter("weights", {3, 4, 4}, zeros());
  auto const loop = [&](bool reversed) {
    Scan body(b, 3, reversed);                         // three iterations
    Var const h = body.carry(x);                       // x in the first one, then what the one before has given
    Var const weight = body.slice(weights, "weight");  // (4, 4): iteration i sees weights[i]
    Var const next = tanh(linear(h, weight) + bias);   // bias, from outside, is the same in all
    return body.finish({next}, {next * next});         // .carried[0]: after the last; .outputs[0]: (3, 2, 4)
  };
  Scanned const forward = loop(false), backward = loop(true);
  CHECK(forward.carried[0].shape() == Shape{2, 4});
  CHECK(forward.outputs[0].shape() == Shape{3, 2, 4});
  auto const last = [](Var stacked, std::int64_t i) {
    return reshape(slice(stacked, {i, 0, 0}, {i + 1, 2, 4}), Shape{2, 4});
  };
  Var const same = last(forward.outputs[0], 2) - forward.carried[0] * forward.carried[0];
  Var const first = last(backward.outputs[0], 0) - backward.carried[0] * backward.carried[0];
  b.output("same", sum_all(same * same) + sum_all(first * first));
  b.output("loss", sum_all(forward.carried[0]) + sum_all(forward.outputs[0] * backward.outputs[0]));
  Graph const graph = canonical(b.graph());
  GradientCheck const result = check_gradients(graph, {.samples = 6});
  INFO(result.where);
  CHECK(result.worst < 1e-6);
  Interpreter interpreter(graph);
  interpreter.set("x", naive::Values(8, 0.5));
  interpreter.set("bias", naive::Values(4, 0.25));
  naive::Values values(48);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  interpreter.set("weights", values);
  interpreter.run();
  CHECK(interpreter.output("same")[0] == 0);
}

TEST_CASE("a repeat within a repeat differentiates") {
  struct Inner {
    BOOST_HANA_DEFINE_STRUCT(Inner, (Param, weight));
  };
  Builder b;
  Var const outer = b.parameter("outer", {2, 3}, zeros()), inner = b.parameter("inner", {2, 3}, zeros());
  Var const x = b.parameter("x", {3}, zeros());
  Scan loop(b, x, 2, Where::current());
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

namespace {

/// An LSTM over time (T, B, C), its hidden states (T, B, H) kept; the sum of their squares and of the last cell's.
Graph lstm(bool reversed, bool backward_only_last) {
  std::int64_t const time = 4, batch = 2, channels = 3, hidden = 2;
  Builder b;
  Var const x = b.parameter("x", {time, batch, channels}, zeros());
  Var const input = b.parameter("input", {4 * hidden, channels}, zeros()),
            recurrent = b.parameter("recurrent", {4 * hidden, hidden}, zeros());
  Var const h0 = b.parameter("h", {batch, hidden}, zeros()), c0 = b.parameter("c", {batch, hidden}, zeros());
  Scanned const states = scan(
      {h0, c0}, {x},
      [&](List<Var> const& carried, List<Var> const& elements) {
        Var const gates = linear(elements[0], input) + linear(carried[0], recurrent);
        auto const gate = [&](std::int64_t i) { return slice(gates, {0, i * hidden}, {batch, (i + 1) * hidden}); };
        Var const c = logistic(gate(0)) * carried[1] + logistic(gate(1)) * tanh(gate(2));
        Var const h = logistic(gate(3)) * tanh(c);
        return ScanStep{{h, c}, {h}};
      },
      reversed);
  b.output("h", states.carried[0]);
  b.output("all", states.outputs[0]);
  Var loss = sum_all(states.carried[1] * states.carried[1]);
  if (!backward_only_last) loss = loss + sum_all(states.outputs[0] * states.outputs[0]);
  b.output("loss", loss);
  return canonical(b.graph());
}

}  // namespace

TEST_CASE("a scan carries several values and keeps what every iteration gives, in both directions") {
  for (bool reversed : {false, true})
    for (bool only_last : {false, true}) {
      CAPTURE(reversed, only_last);
      Graph const graph = lstm(reversed, only_last);
      GradientCheck const result = check_gradients(graph, {.samples = 9});
      INFO(result.where);
      CHECK(result.worst < 1e-6);
      Interpreter run(graph);
      randomise(run, {});
      run.run();
      naive::Values const last = run.output("h"), all = run.output("all");
      std::size_t const at = reversed ? 0 : 3 * last.size();  // the last iteration's place
      for (std::size_t i = 0; i < last.size(); ++i) CHECK(all[at + i] == last[i]);
    }
}

TEST_CASE("a scan over every rank's own sequence starts from what is the same on all") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3, 2}, Replication::varying), w = b.parameter("w", {2}, zeros());
  Var const learned = b.parameter("learned", {2}, zeros()), zero = constant(b, 0, {2});
  Scanned const sums = scan({learned, zero}, {x}, [&](List<Var> const& carried, List<Var> const& elements) {
    Var const next = tanh(carried[0] + elements[0] * w);
    return ScanStep{{next, carried[1] + next}};
  });
  b.output("loss", sum_all(sums.carried[1] * sums.carried[0]));
  GradientCheck const result = check_gradients(canonical(b.graph()), {}, {}, 3);
  INFO(result.where);
  CHECK(result.worst < 1e-6);
}

TEST_CASE("a scan may reduce what it carries over ranks, and stand in the body of another loop") {
  Builder b;
  Var const x = b.parameter("x", {2}, zeros()), d = b.input("d", DType::float32, {3, 2}, Replication::varying);
  Scanned const sums = scan({x}, {d}, [](List<Var> const& carried, List<Var> const& elements) {
    return ScanStep{{all_reduce(carried[0] * elements[0], comm::PortOp::avg)}};
  });
  b.output("loss", sum_all(sums.carried[0] * sums.carried[0]));
  CHECK(check_gradients(canonical(b.graph()), {}, {}, 2).worst < 1e-6);

  Builder outer;
  Var const start = outer.parameter("start", {4, 2}, zeros()), zero = constant(outer, 0, {2});
  Scan layers(outer, start, 2, Where::current());
  Scanned const inner = scan({zero}, {layers.carried()}, [](List<Var> const& carried, List<Var> const& elements) {
    Var const next = tanh(carried[0] + elements[0]);
    return ScanStep{{next}, {next}};
  });
  outer.output("loss", sum_all(layers.finish(inner.outputs[0])));
  CHECK(check_gradients(canonical(outer.graph())).worst < 1e-6);
}

TEST_CASE("a scan whose body returns something else than it takes is refused") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3, 2}), h = b.input("h", DType::float32, {2});
  REQUIRE_ERROR(scan({h}, {x}, [](List<Var> const&, List<Var> const& e) { return ScanStep{{e[0], e[0]}}; }),
                ErrorKind::invalid_argument, "as many carried values as it takes, at least one: 2 for 1");
  REQUIRE_ERROR(scan({h}, {x, h}, [](List<Var> const& c, List<Var> const&) { return ScanStep{c}; }), ErrorKind::shape,
                "one element per iteration");
  REQUIRE_ERROR(scan({}, {x}, [](List<Var> const& c, List<Var> const&) { return ScanStep{c}; }),
                ErrorKind::invalid_argument, "needs a carried value and a sequence");
  REQUIRE_ERROR(scan({h}, {x}, [](List<Var> const&, List<Var> const& e) { return ScanStep{{reduce_sum(e[0], {0})}}; }),
                ErrorKind::shape, "the shape that it takes");
}
