// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/ir.hpp>
// Covers: <tutti/graph/node.hpp> <tutti/graph/renumbering.hpp>
// The order of construction is not observable, and a constant expression makes the same graph as a run.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/print.hpp>

#include "model.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

namespace {

struct Trace {
  constexpr Graph operator()() const { return test::gpt_loss(3); }
};
struct Gradient {
  constexpr Graph operator()() const { return grad(test::gpt_loss(3)); }
};
struct VaryingGradient {
  constexpr Graph operator()() const { return grad(test::gpt_loss(3, Replication::varying)); }
};
constexpr auto traced = freeze<Trace>();
struct Staged {
  constexpr Graph operator()() const { return grad(thaw(traced)); }
};
constexpr auto differentiated = freeze<Gradient>();
constexpr auto differentiated_varying = freeze<VaryingGradient>();
constexpr auto staged = freeze<Staged>();

bool contains(Graph const& graph, Op op) {
  for (Id id = 0; id < graph.size(); ++id)
    if (graph.op(id) == op) return true;
  return false;
}

}  // namespace

TEST_CASE("a GPT traced and differentiated in a constant expression is the graph that a run makes") {
  CHECK(same(thaw(traced), Trace{}()));
  CHECK(same(thaw(differentiated), Gradient{}()));
  CHECK(same(thaw(staged), Gradient{}()));
  CHECK(same(thaw(differentiated_varying), VaryingGradient{}()));
  CHECK_FALSE(same(thaw(differentiated), VaryingGradient{}()));
  CHECK(to_string(thaw(differentiated)) == to_string(Gradient{}()));
}

TEST_CASE("graphs built in different orders are the same after renumbering") {
  auto const build = [](bool left_first) {
    Builder b;
    Var const x = b.input("x", DType::float32, {3});
    Var const y = b.input("y", DType::float32, {3});
    Var left, right;
    if (left_first) left = exp(x);
    right = tanh(y);
    if (!left_first) left = exp(x);
    static_cast<void>(x * y);  // dead
    b.output("z", left * right);
    return b.graph();
  };
  CHECK(same(build(true), build(false)));
  CHECK(canonical(build(true)).size() == 5);
  CHECK(to_string(canonical(build(true), false)) == to_string(canonical(build(false), false)));
}

TEST_CASE("different graphs differ: operand order, attributes, shapes, names, bodies") {
  auto const build = [](auto f) {
    Builder b;
    Var const x = b.input("x", DType::float32, {3}), y = b.input("y", DType::float32, {3});
    b.output("z", f(x, y));
    return canonical(b.graph());
  };
  Graph const base = build([](Var x, Var y) { return x - y; });
  CHECK_FALSE(same(base, build([](Var x, Var y) { return y - x; })));
  CHECK_FALSE(same(build([](Var x, Var) { return pow(x, 2); }), build([](Var x, Var) { return pow(x, 3); })));
  CHECK_FALSE(same(test::gpt_loss(2), test::gpt_loss(3)));
  Builder renamed;
  renamed.output("z", renamed.input("a", DType::float32, {3}) - renamed.input("y", DType::float32, {3}));
  CHECK_FALSE(same(base, renamed.graph()));
}

TEST_CASE("renumbering is idempotent and keeps leaves that nothing uses") {
  Builder b;
  b.parameter("unused", {2}, normal(1));
  b.state("moment", {2}, ones());
  Var const x = b.input("x", DType::float32, {2});
  b.output("y", x * 2);
  Graph const once = canonical(b.graph()), twice = canonical(once);
  CHECK(words_of(once) == words_of(twice));
  CHECK(once.parameters.size() == 1);
  CHECK(once.states.size() == 1);
  CHECK(once.state_inits[0] == ones());
  CHECK(contains(once, Op::state));
  CHECK(once.find_leaf("unused") != none);
  CHECK(once.find_leaf("nothing") == none);
}

TEST_CASE("freezing and thawing loses nothing") {
  Graph const graph = grad(test::gpt_loss(2));
  CHECK(words_of(thaw(words_of(graph))) == words_of(graph));
  CHECK(to_string(thaw(words_of(graph))) == to_string(graph));
}
