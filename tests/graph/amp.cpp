// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mixed precision: which products it rounds, that gradients follow, and that executors and interpreter agree on what it
// computes.

#include <tutti/graph/amp.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/grad.hpp>

#include "model.hpp"
#include "run_graph.hpp"
#include "small_gpt.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;
using namespace tutti::test;

namespace {

struct Products {
  int all = 0, rounded = 0;
};
Products products(Graph const& graph) {
  Products count;
  for (Id id = 0; id < graph.size(); ++id) {
    if (graph.op(id) == Op::repeat) {
      Products const inside = products(graph.body(id));
      count.all += inside.all, count.rounded += inside.rounded;
    }
    if (!is_product(graph.op(id))) continue;
    ++count.all;
    if (product_type(graph, id) != DType::bfloat16) continue;
    ++count.rounded;
    CHECK(graph.dtype(id) == DType::float32);
  }
  return count;
}

constexpr Graph product_graph(bool with_bias) {
  Builder builder;
  Var const x = builder.input("x", DType::float32, {3, 5, 7}), w = builder.input("w", DType::float32, {11, 7}),
            b = builder.input("b", DType::float32, {11});
  builder.output("y", with_bias ? linear(x, w, b) : linear(x, w));
  return canonical(builder.graph());
}
static_assert(product_type(amp(product_graph(true), DType::bfloat16),
                           amp(product_graph(true), DType::bfloat16).find_output("y")) == DType::bfloat16,
              "the pass runs while compiling");

}  // namespace

TEST_CASE("amp rounds the operands of every product, in bodies too, and nothing else") {
  SmallSizes const sizes;
  for (SmallPass const pass : {SmallPass::loss, SmallPass::gradients, SmallPass::whole}) {
    Graph const graph = small_graph(sizes, pass), rounded = amp(graph, DType::bfloat16);
    CHECK(products(graph).rounded == 0);
    CHECK(products(rounded).rounded == products(graph).all);
    CHECK(products(rounded).all == products(graph).all);
    CHECK(rounded.size() == graph.size());
    CHECK(rounded.parameters.size() == graph.parameters.size());
    CHECK((to_string(amp(rounded, DType::bfloat16)) == to_string(rounded)));
    CHECK((to_string(amp(graph, DType::float32)) == to_string(graph)));
  }
}

TEST_CASE("products of a gradient are rounded whether amp comes before it or after") {
  SmallSizes const sizes;
  Graph const before = grad(amp(small_graph(sizes, SmallPass::loss), DType::bfloat16));
  CHECK(products(before).all > products(small_graph(sizes, SmallPass::loss)).all);
  CHECK(products(before).rounded == products(before).all);
  Graph const whole = decompose(amp(small_graph(sizes, SmallPass::gradients), DType::bfloat16));
  CHECK(products(whole).rounded > 0);
  CHECK(products(whole).rounded == products(whole).all);  // those that attention consists of, too
}

TEST_CASE("executors multiply as the interpreter does: operands rounded to bfloat16, sums in fp32") {
  for (bool const with_bias : {false, true}) check_graph(amp(product_graph(with_bias), DType::bfloat16));
  Builder builder;
  Var const a = builder.input("a", DType::float32, {2, 9, 13}), b = builder.input("b", DType::float32, {2, 13, 17}),
            c = builder.input("c", DType::float32, {9, 40});
  builder.output("batched", dot_general(a, b, {2}, {1}, {0}, {0}));
  builder.output("turned", dot_general(c, c, {0}, {0}));
  builder.output("gelu", gelu(dot_general(c, c, {1}, {1})));
  check_graph(amp(canonical(builder.graph()), DType::bfloat16));
  // The rounding shows: with it the product of one by 1 + 2^-9 is one.
  Builder one;
  Var const x = one.input("x", DType::float32, {1, 1});
  one.output("y", dot_general(x, x, {1}, {1}));
  Graph const graph = canonical(one.graph());
  Interpreter plain(graph), rounded(amp(graph, DType::bfloat16));
  for (Interpreter* run : {&plain, &rounded}) run->set("x", {1 + 0x1p-9}), run->run();
  CHECK(plain.output("y")[0] == (1 + 0x1p-9) * (1 + 0x1p-9));
  CHECK(rounded.output("y")[0] == 1);
}

TEST_CASE("attention multiplies rounded operands, forward and backward, with shared heads too") {
  for (int kv_heads : {1, 2, 4}) {
    Builder builder;
    Var const x = builder.input("x", DType::float32, {2, 37, 8 * (4 + 2 * kv_heads)});
    Var const y = attention(x, 4, kv_heads), loss = reduce_sum(y * y, {0, 1, 2});
    builder.output("y", y);
    builder.output("dx", gradients(loss, {x})[0]);
    // Exponentials and slopes that lie between two numbers of bfloat16 may be rounded to either.
    check_graph(amp(canonical(builder.graph()), DType::bfloat16), 8e-3);
  }
}

TEST_CASE("the head of a language model is rounded in all its products, its loss is not") {
  Builder builder;
  Var const x = builder.input("x", DType::float32, {70, 12}), w = builder.input("w", DType::float32, {23, 12}),
            targets = builder.input("targets", DType::int32, {70});
  Var const loss = linear_cross_entropy(x, w, targets, 19);
  List<Var> const slopes = gradients(loss, {x, w});
  builder.output("loss", loss);
  builder.output("dx", slopes[0]);
  builder.output("dw", slopes[1]);
  // A slope that lies between two numbers of bfloat16 may be rounded to either.
  check_graph(amp(canonical(builder.graph()), DType::bfloat16), 4e-3, 19);
}

TEST_CASE("a whole training step in bfloat16 stays near the interpreter's") {
  check_graph(amp(small_graph({}, SmallPass::gradients), DType::bfloat16), 2e-2, 19);
}

TEST_CASE("amp refuses what products cannot be made in, and graphs whose operands are not float32") {
  Graph const graph = product_graph(false);
  REQUIRE_ERROR(amp(graph, DType::float16), ErrorKind::dtype, "matrix products are made in bfloat16 or float32");
  Builder builder;
  Var const x = builder.input("x", DType::float64, {3, 4});
  builder.output("y", dot_general(x, x, {1}, {1}));
  Graph const wide = canonical(builder.graph());
  CHECK(products(amp(wide, DType::bfloat16)).rounded == 0);
}
