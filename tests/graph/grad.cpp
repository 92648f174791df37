// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the reverse pass does beyond its rules: sums of cotangents, seeds, paths that do not exist. Rules are checked in
// vjp.cpp.

#include <tutti/graph/check.hpp>
#include <tutti/graph/composites.hpp>

#include "model.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

namespace {

int count(Graph const& graph, Op op) {
  int n = 0;
  for (Id id = 0; id < graph.size(); ++id) n += graph.op(id) == op;
  return n;
}

}  // namespace

TEST_CASE("a parameter used twice gets the sum of both gradients") {
  Builder b;
  Var const x = b.parameter("x", {3}, zeros());
  b.output("loss", sum_all(x * x * x) + sum_all(exp(x)));
  GradientCheck const result = check_gradients(canonical(b.graph()));
  INFO(result.where);
  CHECK(result.worst < 1e-6);
}

TEST_CASE("tied embeddings: the rows' gradients are added in place onto the head's") {
  Graph const graph = grad(test::gpt_loss(1));
  int based = 0;
  for (Id id = 0; id < graph.size(); ++id) {
    if (graph.op(id) != Op::embedding_gradient || graph.operands(id).size() != 3) continue;
    ++based;
    Id const base = graph.operand(id, 2);
    CHECK(graph.op(base) == Op::result);
    CHECK(graph.op(graph.operand(base, 0)) == Op::linear_cross_entropy);
  }
  CHECK(based == 1);
  CHECK(count(graph, Op::linear_cross_entropy) == 1);
}

TEST_CASE("a constant seed is folded into the loss kernel: forward and gradient stay one node") {
  Builder b;
  Var const x = b.parameter("x", {4, 3}, zeros()), w = b.parameter("w", {5, 3}, zeros()),
            t = b.input("t", DType::int32, {4});
  b.output("loss", linear_cross_entropy(x, w, t));
  Graph const forward = canonical(b.graph());
  Graph const quarter = grad(forward, "loss", 0.25);
  REQUIRE(count(quarter, Op::linear_cross_entropy) == 1);
  for (Id id = 0; id < quarter.size(); ++id)
    if (quarter.op(id) == Op::linear_cross_entropy) CHECK(quarter.real(id) == 0.25);
  Interpreter whole(grad(forward)), part(quarter);
  for (Interpreter* run : {&whole, &part}) {
    randomise(*run, {.integers = 5});
    run->run();
  }
  CHECK(whole.output("loss") == part.output("loss"));
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(part.output("gradient.x")[i] == Approx(0.25 * whole.output("gradient.x")[i]));
}

TEST_CASE("where there is no path the gradient is zero") {
  Builder b;
  Var const x = b.parameter("x", {3}, zeros()), y = b.parameter("y", {2, 2}, zeros());
  b.output("loss", sum_all(x));
  Graph const graph = grad(canonical(b.graph()));
  Interpreter run(graph);
  run.run();
  CHECK(run.output("gradient.x") == naive::Values{1, 1, 1});
  CHECK(run.output("gradient.y") == naive::Values{0, 0, 0, 0});
  CHECK(graph.shape(graph.find_output("gradient.y")) == y.shape());
}

TEST_CASE("gradients with respect to intermediate values and by parts of one graph") {
  Builder b;
  Var const x = b.parameter("x", {3}, zeros()), y = x * x;
  Var const loss = sum_all(y * 3);
  List<Var> const g = gradients(loss, {y, x}, 2);
  b.output("y", g[0]);
  b.output("x", g[1]);
  Interpreter run(canonical(b.graph()));
  run.set("x", {1, 2, 3});
  run.run();
  CHECK(run.output("y") == naive::Values{6, 6, 6});
  CHECK(run.output("x") == naive::Values{12, 24, 36});
}

TEST_CASE("the order of construction does not change the gradient graph") {
  auto const build = [](bool swapped) {
    Builder b;
    Var const x = b.parameter("x", {3}, zeros());
    Var p, q;
    if (swapped) q = tanh(x);
    p = exp(x);
    if (!swapped) q = tanh(x);
    Var const r = sin(x);
    b.output("loss", sum_all(p * q + r));
    return grad(b.graph());
  };
  CHECK(same(build(false), build(true)));
}

TEST_CASE("only floating scalars that exist can be differentiated") {
  Builder b;
  Var const x = b.parameter("x", {3}, zeros());
  REQUIRE_ERROR(gradients(x, {x}), ErrorKind::shape,
                "only a scalar has a gradient; sum or average it first (shape here: (3,))");
  REQUIRE_ERROR(gradients(constant(b, 1, {}, DType::int32), {x}), ErrorKind::dtype,
                "only a floating value has a gradient");
  REQUIRE_ERROR(gradients(Var{}, {x}), ErrorKind::invalid_argument, "belongs to no graph");
  REQUIRE_ERROR(grad(canonical(b.graph()), "cost"), ErrorKind::invalid_argument, "no output \"cost\"");
}

TEST_CASE("gradient nodes carry the line of what they differentiate") {
  Builder b;
  Var const x = b.parameter("x", {3}, zeros());
  Var const y = exp(x);
  int const line = __LINE__ - 1;
  Var const g = gradients(sum_all(y * y), {x})[0];
  CHECK(b.graph().op(g.id) == Op::multiply);
  CHECK(b.graph()[g.id].line == line);
}
