// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/op.hpp> <tutti/graph/ops.hpp>

#include <tutti/graph/builder.hpp>
#include <tutti/graph/composites.hpp>

#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

TEST_CASE("equal nodes are one node, different ones are not") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  Var const y = b.input("y", DType::float32, {3});
  CHECK((x + y).id == (x + y).id);
  CHECK((x + y).id != (y + x).id);
  CHECK(pow(x, 2).id == pow(x, 2).id);
  CHECK(pow(x, 2).id != pow(x, 3).id);
  CHECK(constant(b, 1, {3}).id != constant(b, 1, {3, 1}).id);
  CHECK(constant(b, 1).id != constant(b, 1, {}, DType::float64).id);
  CHECK(constant(b, 0.0).id != constant(b, -0.0).id);
  CHECK(barrier(x).id != barrier(x).id);
  for (int i = 0; i < 1000; ++i) static_cast<void>(pow(x, i));
  Id const size = b.graph().size();
  for (int i = 0; i < 1000; ++i) static_cast<void>(pow(x, i));
  CHECK(b.graph().size() == size);
}

TEST_CASE("adding zero, multiplying by one and reshaping to the same shape leave no node") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  for (Var same :
       {x + 0.0, 0.0 + x, x - 0.0, x * 1.0, 1.0 * x, x / 1.0, reshape(x, {3}), convert(x, DType::float32),
        transpose(x, {0}), broadcast_to(x, {3}), pow(x, 1), vary(vary(x)).type().shape == x.shape() ? x : Var{}})
    CHECK(same.id == x.id);
  CHECK((0.0 - x).id != x.id);
  Var const two = constant(b, 1) + constant(b, 1);
  CHECK(b.graph().op(two.id) == Op::constant);
  CHECK(b.graph().real(two.id) == 2);
}

TEST_CASE("nodes remember the user's line") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  Var const named = exp(x);
  int const named_line = __LINE__ - 1;
  Var const operators = x + named * 2;
  int const operator_line = __LINE__ - 1;
  CHECK(b.graph()[named.id].line == named_line);
  CHECK(b.graph()[operators.id].line == operator_line);
  CHECK(b.graph().file(named.id) == "builder.cpp");
}

TEST_CASE("leaves and outputs have names of their own") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  REQUIRE_ERROR(b.parameter("x", {3}, zeros()), ErrorKind::invalid_argument,
                "two leaves of a graph have the same name");
  b.output("y", x);
  REQUIRE_ERROR(b.output("y", x), ErrorKind::invalid_argument, "two outputs have the same name");
  CHECK(b.graph().find_leaf("x") == x.id);
  CHECK(b.graph().find_output("y") == x.id);
  CHECK(b.graph().find_output("x") == none);
}

TEST_CASE("updates are for parameters and states, of their own type, once, and equal on all ranks") {
  Builder b;
  Var const p = b.parameter("p", {3}, zeros()), s = b.state("s", {3}), x = b.input("x", DType::float32, {3});
  Var const own = b.input("own", DType::float32, {3}, Replication::varying);
  REQUIRE_ERROR(b.update(x, x), ErrorKind::invalid_argument, "only parameters and states can be updated");
  REQUIRE_ERROR(b.update(p, b.input("n", DType::float32, {4})), ErrorKind::shape,
                "an update keeps the shape (shapes here: (3,) and (4,))");
  REQUIRE_ERROR(b.update(p, convert(x, DType::float64)), ErrorKind::dtype, "an update keeps the dtype");
  REQUIRE_ERROR(b.update(p, p - own), ErrorKind::communication, "all_reduce it first");
  b.update(p, p - all_reduce(own, comm::PortOp::avg));
  b.update(s, s + x);
  REQUIRE_ERROR(b.update(p, x), ErrorKind::invalid_argument, "already has an update");
  CHECK(b.graph().updates.size() == 2);
}

TEST_CASE("values of other graphs and unbound handles are refused with a sentence") {
  Builder b, c;
  Var const x = b.input("x", DType::float32, {3}), y = c.input("y", DType::float32, {3});
  REQUIRE_ERROR(x + y, ErrorKind::invalid_argument, "belongs to another graph");
  REQUIRE_ERROR(exp(Var{}), ErrorKind::invalid_argument, "a parameter must be bound");
}

TEST_CASE("replicated operands of an operation on varying ones get a vary node, once") {
  Builder b;
  Var const w = b.parameter("w", {3}, zeros()), x = b.input("x", DType::float32, {3}, Replication::varying);
  Var const y = x * w, z = x + w;
  CHECK(y.type().replication == Replication::varying);
  CHECK(b.graph().operand(y.id, 1) == b.graph().operand(z.id, 1));
  CHECK(b.graph().op(b.graph().operand(y.id, 1)) == Op::vary);
  CHECK(all_reduce(y).type().replication == Replication::replicated);
  CHECK((w * 2).type().replication == Replication::replicated);
  REQUIRE_ERROR(all_reduce(w), ErrorKind::communication, "equal on all ranks already");
  REQUIRE_ERROR(all_reduce(y, comm::PortOp::max), ErrorKind::invalid_argument, "sum and avg alone");
  Var const addend = partial(y);
  CHECK((addend * w).type().replication == Replication::partial);
  CHECK((addend + addend).type().replication == Replication::partial);
  CHECK(reduce_sum(addend, {0}).type().replication == Replication::partial);
  REQUIRE_ERROR(exp(addend), ErrorKind::communication, "all_reduce it before this operation");
  REQUIRE_ERROR(addend + x, ErrorKind::communication, "all_reduce it before this operation");
  REQUIRE_ERROR(addend * addend, ErrorKind::communication, "all_reduce it before this operation");
}
