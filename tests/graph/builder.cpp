// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/op.hpp> <tutti/graph/ops.hpp> <tutti/graph/ops_indexing.hpp>

#include <tutti/graph/builder.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/param.hpp>

#include "support/catch.hpp"

#include <functional>
#include <iterator>

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
                "two leaves of a graph have the name 'x'");
  REQUIRE_ERROR(b.input("", DType::float32, {3}), ErrorKind::invalid_argument, "a leaf of a graph needs a name");
  b.output("y", x);
  REQUIRE_ERROR(b.output("y", x), ErrorKind::invalid_argument, "two outputs have the name 'y'");
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
  REQUIRE_ERROR(exp(Var{}), ErrorKind::invalid_argument, "A parameter is bound by trace");
}

TEST_CASE("a handle of no graph is refused by every operation, at the caller's line, and never taken for a number") {
  Builder b;
  Var const x = b.parameter("x", {2, 3}, zeros()), i = b.input("i", DType::int32, {2});
  Param const unbound{{2, 3}, zeros()};
  Var const none_at_all = unbound;
  std::function<void()> const uses[] = {
      [&] { static_cast<void>(x * unbound); },
      [&] { static_cast<void>(unbound + x); },
      [&] { static_cast<void>(x - none_at_all); },
      [&] { static_cast<void>(none_at_all / x); },
      [&] { static_cast<void>(2 * unbound); },
      [&] { static_cast<void>(-none_at_all); },
      [&] { static_cast<void>(maximum(x, Var{})); },
      [&] { static_cast<void>(minimum(Var{}, x)); },
      [&] { static_cast<void>(less(x, unbound)); },
      [&] { static_cast<void>(select(less(x, 0), x, unbound)); },
      [&] { static_cast<void>(select(Var{}, x, 1)); },
      [&] { static_cast<void>(sqrt(unbound)); },
      [&] { static_cast<void>(full_like(unbound, 1)); },
      [&] { static_cast<void>(broadcast_to(unbound, {2, 3})); },
      [&] { static_cast<void>(broadcast_in_dim(unbound, {2, 3}, {0, 1})); },
      [&] { static_cast<void>(convert(unbound, DType::float64)); },
      [&] { static_cast<void>(reshape(unbound, {3, 2})); },
      [&] { static_cast<void>(transpose(unbound, {1, 0})); },
      [&] { static_cast<void>(slice(unbound, {0, 0}, {1, 1})); },
      [&] { static_cast<void>(pad(unbound, {0, 0}, {1, 1})); },
      [&] { static_cast<void>(concatenate({x, unbound}, 0)); },
      [&] { static_cast<void>(reduce_sum(unbound, {-1})); },
      [&] { static_cast<void>(sum_all(unbound)); },
      [&] { static_cast<void>(mean_all(unbound)); },
      [&] { static_cast<void>(dot_general(x, unbound, {1}, {1})); },
      [&] { static_cast<void>(dynamic_slice(unbound, {}, {1, 1})); },
      [&] { static_cast<void>(gather(unbound, i)); },
      [&] { static_cast<void>(vary(unbound)); },
      [&] { static_cast<void>(all_reduce(unbound)); },
      [&] { static_cast<void>(all_gather(unbound, 2)); },
      [&] { static_cast<void>(reduce_scatter(unbound, 2)); },
      [&] { static_cast<void>(linear(x, unbound)); },
      [&] { static_cast<void>(attention(unbound, 1)); },
      [&] { static_cast<void>(linear_cross_entropy(x, unbound, i)); },
      [&] { static_cast<void>(gradients(unbound, {x})); },
      [&] { static_cast<void>(gradients(sum_all(x), {unbound})); },
      [&] { static_cast<void>(none_at_all.shape()); },
      [&] { b.output("y", unbound); },
      [&] { b.update(x, unbound); },
  };
  int line = __LINE__ - 1 - static_cast<int>(std::size(uses));
  for (auto const& use : uses) {
    INFO("the use at line " << line);
    REQUIRE_ERROR(use(), ErrorKind::invalid_argument, "BOOST_HANA_DEFINE_STRUCT");
    REQUIRE_ERROR(use(), ErrorKind::invalid_argument, "builder.cpp:" + std::to_string(line));
    ++line;
  }
}

namespace {
template <auto Use>
concept Constant = requires { typename std::bool_constant<(Use(), true)>; };
constexpr Param gain{{3}, ones()};
constexpr auto times_bound = [] {
  Builder b;
  Var const x = b.input("x", DType::float32, {3});
  return (x * b.parameter("gain", gain.shape, gain.init)).id;
};
constexpr auto times_unbound = [] {
  Builder b;
  return (b.input("x", DType::float32, {3}) * gain).id;
};
constexpr auto shape_of_unbound = [] { return Var(gain).rank(); };
}  // namespace

TEST_CASE("in a constant expression a handle of no graph is refused too") {
  STATIC_REQUIRE(Constant<times_bound>);
  STATIC_REQUIRE_FALSE(Constant<times_unbound>);
  STATIC_REQUIRE_FALSE(Constant<shape_of_unbound>);
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
  REQUIRE_ERROR(all_reduce(w), ErrorKind::communication,
                "counts as equal on all ranks, as inputs do unless they are declared varying");
  REQUIRE_ERROR(all_reduce(y, comm::PortOp::max), ErrorKind::invalid_argument, "sum and avg alone");
  Var const addend = partial(y);
  CHECK((addend * w).type().replication == Replication::partial);
  CHECK((addend + addend).type().replication == Replication::partial);
  CHECK(reduce_sum(addend, {0}).type().replication == Replication::partial);
  REQUIRE_ERROR(exp(addend), ErrorKind::communication, "all_reduce it before this operation");
  REQUIRE_ERROR(addend + x, ErrorKind::communication, "all_reduce it before this operation");
  REQUIRE_ERROR(addend * addend, ErrorKind::communication, "all_reduce it before this operation");
}
