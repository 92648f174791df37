// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/decompose_attention.hpp> <tutti/graph/decompose_parts.hpp>
// Composites against what they are written out as: forwards, through their own gradients, and through the primitives'
// gradients.

#include <tutti/graph/check.hpp>
#include <tutti/graph/decompose.hpp>

#include "graph/each_function.hpp"
#include "model.hpp"
#include "support/catch.hpp"
#include "support/tolerance.hpp"

using namespace tutti;
using namespace tutti::graph;

namespace {

struct Difference {
  double worst = 0;
  std::string where;
};

/// Largest difference between the outputs of two graphs on the same leaves, relative to 1 or the value.
Difference difference(Graph const& a, Graph const& b, GradientCheckOptions const& options,
                      std::vector<std::pair<std::string, naive::Values>> const& given = {}) {
  Interpreter left(a), right(b);
  randomise(left, options, given);
  for (Id id = 0; id < a.size(); ++id)
    if (a[id].name != none) right.set(a.name(id), left.get(a.name(id)));
  left.run();
  right.run();
  Difference result;
  REQUIRE(a.outputs.size() == b.outputs.size());
  for (Output const& output : a.outputs) {
    std::string const name(a.text_of(output.name));
    naive::Values const &x = left.output(name), &y = right.output(name);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const error = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(x[i]));
      if (exceeds(error, result.worst)) result = {error, name + "[" + std::to_string(i) + "]"};
    }
  }
  return result;
}

bool is_written_out(Op op) {
  bool found = false;
  if (is_function(op))
    with_operation(op, [&]<class Of>() { found = requires(graph::detail::Parts const& p) { Of::decomposition(p); }; });
  return found;
}
bool has_composites(Graph const& graph) {
  for (Id id = 0; id < graph.size(); ++id) {
    Op const op = graph.op(id);
    if (info(op).kind == OpClass::composite || is_written_out(op)) return true;
    if (graph.op(id) == Op::repeat && has_composites(graph.body(id))) return true;
  }
  return false;
}

constexpr double bound = 1e-9;  // thousands of roundings of 1e-16

/// Forward, gradient written out, and gradient of what is written out, all agree.
void check(Graph const& graph, GradientCheckOptions const& options,
           std::vector<std::pair<std::string, naive::Values>> const& given = {}) {
  Graph const own = grad(graph);
  REQUIRE_FALSE(has_composites(decompose(own)));
  Difference const written = difference(own, decompose(own), options, given);
  INFO("composites and their gradients written out: " << written.where);
  CHECK(written.worst < bound);
  Difference const derived = difference(own, grad(decompose(graph)), options, given);
  INFO("own gradients against gradients of primitives: " << derived.where);
  CHECK(derived.worst < bound);
}

}  // namespace

TEST_CASE("every function of elements that is written out in primitives is the same one") {
  int written = 0;
  test::for_each_function([&](Op op, std::string const& name) {
    if (!is_written_out(op)) return;
    INFO(name);
    ++written;
    Builder b;
    Var const x = b.parameter("x", {9}, zeros()), y = b.parameter("y", {9}, zeros());
    b.output("y", test::applied_to_any(op, x * 4.0, y * 4.0));
    Graph const own = canonical(b.graph());
    REQUIRE_FALSE(has_composites(decompose(own)));
    Difference const result = difference(own, decompose(own), {});
    INFO(result.where);
    CHECK(result.worst < bound);
  });
  CHECK(written > 0);
}

TEST_CASE("a comparison in which one output is NaN is not a good one") {
  Builder b;
  Var const x = b.input("x", DType::float32, {2});
  b.output("first", x);
  b.output("second", log(-1.0 - x * x));
  b.output("third", x * 2);
  Graph const graph = canonical(b.graph());
  Difference const d = difference(graph, graph, {});
  CHECK(std::isnan(d.worst));
  CHECK(d.where == "second[0]");
}

TEST_CASE("a whole GPT computes and differentiates the same as its primitives") {
  for (std::int64_t layers : {1, 3}) {
    INFO("layers " << layers);
    check(test::gpt_loss(layers), {.integers = 7});
  }
}

TEST_CASE("every composite equals its decomposition at odd sizes") {
  for (int channels : {1, 2, 6}) {
    for (int tokens : {1, 3, 5}) {
      INFO("channels " << channels << ", tokens " << tokens);
      Builder b;
      Var const ids = b.input("tokens", DType::int32, {2, tokens}),
                targets = b.input("targets", DType::int64, {2, tokens});
      Var const table = b.parameter("table", {4, channels}, zeros()),
                positions = b.parameter("positions", {tokens + 1, channels}, zeros());
      Var x = embed(table, positions, ids) + embed(table, ids);
      x = layer_norm(x, b.parameter("gamma", {channels}, ones()), b.parameter("beta", {channels}, zeros()), 1e-3);
      x = gelu(linear(x, b.parameter("up", {3 * channels, channels}, zeros()),
                      b.parameter("bias", {3 * channels}, zeros())));
      x = attention(x, channels > 1 ? 2 : 1);
      Losses const head = linear_cross_entropy_losses(x, b.parameter("head", {5, channels}, zeros()), targets, 4, 3);
      Var const plain = cross_entropy(linear(x, table), targets, 0);
      b.output("tokens", head.tokens);
      b.output("loss", head.mean * 0.5 + plain * plain +
                           convert(square_sum(x, convert(plain, DType::float64)), DType::float32));
      check(canonical(b.graph()), {.integers = 4});
    }
  }
  for (int kv_heads : {1, 2}) {  // shared keys and values
    Builder b;
    b.output("loss", reduce_sum(attention(b.parameter("x", {2, 3, 2 * (4 + 2 * kv_heads)}, zeros()), 4, kv_heads) * 0.5,
                                {0, 1, 2}));
    check(canonical(b.graph()), {});
  }
}

TEST_CASE("RMS norm, rotary embedding, SiLU and its gate equal their decompositions at odd sizes") {
  for (auto pairing : {kernel::RotaryPairing::half, kernel::RotaryPairing::interleaved})
    for (int tokens : {1, 3, 5}) {
      INFO("pairing " << static_cast<int>(pairing) << ", tokens " << tokens);
      Builder b;
      Var x = b.parameter("x", {2, tokens, 12}, zeros());
      Var const first = b.input("first", DType::int32, {});
      Rotations const by = rotations(first, tokens, 6);
      x = rms_norm(x, b.parameter("norm", {12}, ones()), 1e-3);
      Var const q = rotary(linear(x, b.parameter("q", {12, 12}, zeros())), by, pairing),
                k = rotary(linear(x, b.parameter("k", {12, 12}, zeros())), by, pairing);
      x = attention(concatenate({q, k, x}, 2), 2);
      Var const gate = linear(x, b.parameter("gate", {7, 12}, zeros())),
                up = linear(x, b.parameter("up", {7, 12}, zeros()));
      x = swiglu(gate, up) + silu(up);
      Var const key = constant(b, 5, {}, DType::int64);
      x = dropout(x, 0.25, {key, key, key, key});
      x = cumsum(x, 1) * 0.3 + cumsum(x, 2, true) * 0.1;
      b.output("loss", mean_all(x * x * x));
      check(canonical(b.graph()), {.integers = 4});
    }
}

namespace {
struct RotatedNorm {
  constexpr Graph operator()() const {
    Builder b;
    Var const x = b.parameter("x", {2, 3, 8}, zeros()), w = b.parameter("w", {8}, ones());
    b.output("loss", sum_all(silu(rotary(rms_norm(x, w), rotations(b, 3, 4)))));
    return decompose(grad(canonical(b.graph())));
  }
};
}  // namespace

TEST_CASE("operations of the LLaMA family are traced, differentiated and written out in constant expressions") {
  static constexpr auto frozen = freeze<RotatedNorm>();
  CHECK(same(thaw(frozen), RotatedNorm{}()));
}

TEST_CASE("when every target is ignored the loss and its gradients are zero, not NaN") {
  Builder b;
  Var const x = b.parameter("x", {3, 2}, zeros()), targets = b.input("targets", DType::int32, {3});
  b.output("loss", cross_entropy(x, targets) + linear_cross_entropy(x, b.parameter("w", {4, 2}, zeros()), targets));
  Graph const graph = grad(canonical(b.graph()));
  for (Graph const& g : {graph, decompose(graph)}) {
    Interpreter run(g);
    randomise(run, {}, {{"targets", {-1, -1, -1}}});
    run.run();
    CHECK(run.output("loss")[0] == 0);
    for (double value : run.output("gradient.x")) CHECK(value == 0);
    for (double value : run.output("gradient.w")) CHECK(value == 0);
  }
}

TEST_CASE("one AdamW step equals its primitives") {
  Builder b;
  Var const p = b.parameter("p", {5}, zeros()), g = b.input("g", DType::float32, {5});
  Var const m = b.state("m", {5}), v = b.state("v", {5});
  AdamWResult const next = adamw(p, g, m, v * v, b.scalar("rate"), constant(b, 0.1), constant(b, 0.05),
                                 b.scalar("scale"), {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.1});
  b.output("p", next.parameter);
  b.output("m", next.m);
  b.output("v", next.v);
  Graph const graph = canonical(b.graph());
  Difference const d = difference(graph, decompose(graph), {});
  INFO(d.where);
  CHECK(d.worst < bound);
}

namespace {
Var cube(Var x) { return x * x * x; }
/// Sum of the squares of the loss's gradients, in place of the outputs so far.
Graph norm_of_gradients(Graph const& loss) {
  Graph bare = grad(loss);
  List<Id> first;
  for (Output const& output : bare.outputs)
    if (bare.text_of(output.name) != "loss") first.push_back(output.node);
  bare.outputs = {};
  Builder b;
  b.load(bare);
  Var norm = constant(b, 0);
  for (Id id : first) norm = norm + sum_all(Var{&b, id} * Var{&b, id});
  b.output("norm", norm);
  return canonical(b.graph());
}
void check_second(Builder& b, Var loss, GradientCheckOptions options = {}) {
  b.output("loss", loss);
  options.loss = "norm";
  GradientCheck const result = check_gradients(norm_of_gradients(canonical(b.graph())), options);
  INFO(result.where);
  CHECK(result.worst < 1e-5);
}
}  // namespace

TEST_CASE("a second derivative of a composite goes through its primitives") {
  Builder b;
  Var const x = b.parameter("x", {2, 3, 8}, zeros()), w = b.parameter("w", {8}, ones());
  SECTION("functions of elements and gates") { check_second(b, mean_all(gelu(swiglu(x, silu(x))))); }
  SECTION("layer norm") { check_second(b, mean_all(cube(layer_norm(x, w, b.parameter("bias", {8}, zeros()), 1e-3)))); }
  SECTION("RMS norm, with its weight as an operand twice") {
    check_second(b, mean_all(cube(rms_norm(x * w, w, 1e-3))));
  }
  SECTION("attention") {
    check_second(b, mean_all(cube(attention(linear(x, b.parameter("qkv", {24, 8}, zeros())), 2))));
  }
  SECTION("a table of rows") {
    Var const table = w * b.parameter("wte", {5, 8}, zeros());
    check_second(b, mean_all(cube(embed(table, b.input("tokens", DType::int32, {2, 3})))), {.integers = 5});
  }
  SECTION("in the body of a loop") {
    Scan loop(b, x, 3, Where::current());
    check_second(b, mean_all(cube(loop.finish(loop.carried() + gelu(loop.carried())))));
  }
}

TEST_CASE("a second derivative of the losses goes through their primitives") {
  Builder b;
  Var const x = b.parameter("x", {3, 4}, zeros()), targets = b.input("targets", DType::int32, {3});
  SECTION("of logits") { check_second(b, cross_entropy(x, targets), {.integers = 4}); }
  SECTION("of hidden states and a head") {
    check_second(b, linear_cross_entropy(x, b.parameter("w", {5, 4}, zeros()), targets), {.integers = 5});
  }
}

TEST_CASE("what composites give beside their first result has a gradient") {
  Builder b;
  Var const x = b.parameter("x", {3, 4}, zeros()), targets = b.input("targets", DType::int32, {3});
  Losses const losses = linear_cross_entropy_losses(x, b.parameter("w", {5, 4}, zeros()), targets);
  b.output("loss", sum_all(losses.tokens * losses.tokens) + losses.mean);
  GradientCheck const result = check_gradients(canonical(b.graph()), {.integers = 5});
  INFO(result.where);
  CHECK(result.worst < 1e-5);
}
