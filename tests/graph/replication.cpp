// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/graph/file.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/graph/stablehlo/export.hpp>

#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;
using naive::Values;

namespace {
constexpr auto tensor = MeshAxis::tensor;
constexpr Replications parts = Replications().with(tensor, Replication::varying);
}  // namespace

TEST_CASE("a value has a state for every axis of the mesh, in two bits each") {
  Replications const both = Replications(Replication::partial).with(MeshAxis::sequence, Replication::varying);
  CHECK(both[MeshAxis::data] == Replication::partial);
  CHECK(both[tensor] == Replication::replicated);
  CHECK(both[MeshAxis::sequence] == Replication::varying);
  CHECK(both.bits() == 0x42);
  CHECK(both.any(Replication::varying));
  CHECK(!parts.any(Replication::partial));
  CHECK(parts.with(tensor, Replication::replicated) == Replications());
  CHECK(Replications::are_bits(0x42));
  CHECK(!Replications::are_bits(0x03));
  CHECK(!Replications::are_bits(0xc0));
  CHECK(!Replications::are_bits(0x100));
}

TEST_CASE("an operation on parts makes what is replicated each rank's own along that axis alone") {
  Builder b;
  Var const w = b.parameter("w", {3}, zeros(), false, Where::current(), parts), x = b.input("x", DType::float32, {3});
  Var const y = x * w;
  CHECK(y.type().replication == parts);
  Id const met = b.graph().operand(y.id, 0);
  CHECK(b.graph().op(met) == Op::vary);
  CHECK(mesh_axis(b.graph(), met) == tensor);
  CHECK(static_cast<comm::PortOp>(b.graph().integer(met)) == comm::PortOp::sum);
  CHECK(all_reduce(y, tensor).type().replication == Replications());
  REQUIRE_ERROR(all_reduce(y), ErrorKind::communication, "counts as equal on all ranks");
  REQUIRE_ERROR(exp(partial(y, tensor)), ErrorKind::communication, "pending sum along the tensor axis");
  Var const of_both = y * b.input("d", DType::float32, {3}, Replication::varying);
  CHECK(of_both.type().replication == parts.with(MeshAxis::data, Replication::varying));
  CHECK(all_reduce(of_both).type().replication == parts);
}

TEST_CASE("a reduction that is missing along an axis is an error at the user's line") {
  Builder b;
  Var const w = b.parameter("w", {3}, zeros(), false, Where::current(), parts);
  Var const whole = b.parameter("whole", {3}, zeros());
  Var const moment = b.state("m", w.type(), zeros(), StateUpdate::replicated);
  REQUIRE_ERROR(b.update(whole, w), ErrorKind::communication, "differs between ranks of the tensor axis");
  REQUIRE_ERROR(b.update(whole, w), ErrorKind::communication, "(replication.cpp:");
  CHECK_NOTHROW(b.update(moment, w * 2.0));
  CHECK_NOTHROW(b.update(whole, all_reduce(w, tensor)));
}

TEST_CASE("collectives run along lines of the mesh, and gradients go back along them") {
  Builder b;
  Var const x = b.input("x", DType::float32, {2}, parts.with(MeshAxis::data, Replication::varying));
  b.output("tensor", all_reduce(x, tensor));
  b.output("data", all_reduce(x));
  b.output("all", all_gather(x, tensor, 2));
  b.output("root", broadcast(x, tensor, 1));
  b.output("part", reduce_scatter(x, tensor, 2));
  b.output("place", rank_number(b, tensor));
  b.output("row", rank_number(b));
  Interpreter run(canonical(b.graph()), 6, 2);
  for (int r = 0; r < 6; ++r) run.set("x", Values{r + 1.0, 10.0 * r}, r);
  run.run();
  for (int r = 0; r < 6; ++r) {
    int const row = r / 2, place = r % 2, left = 2 * row;
    CHECK(run.output("tensor", r) == Values{2.0 * left + 3, 10.0 * (2 * left + 1)});
    CHECK(run.output("data", r) == Values{3.0 * place + 9, 10.0 * (3 * place + 6)});
    CHECK(run.output("all", r) == Values{left + 1.0, 10.0 * left, left + 2.0, 10.0 * (left + 1)});
    CHECK(run.output("root", r) == Values{left + 2.0, 10.0 * (left + 1)});
    CHECK(run.output("part", r) == (place == 0 ? Values{2.0 * left + 3} : Values{10.0 * (2 * left + 1)}));
    CHECK(run.output("place", r)[0] == place);
    CHECK(run.output("row", r)[0] == row);
  }
}

TEST_CASE("the gradient of what all ranks have, under a loss that they have alike, is the sum of their parts") {
  Builder b;
  Var const x = b.parameter("x", {2}, zeros()), w = b.parameter("w", {2}, zeros(), false, Where::current(), parts);
  b.output("loss", all_reduce(partial(sum_all(x * w), tensor), tensor));
  Graph const graph = grad(canonical(b.graph()));
  CHECK(graph.type(graph.find_output("gradient.x")).replication == Replications());
  CHECK(graph.type(graph.find_output("gradient.w")).replication == parts);
  Interpreter run(graph, 3, 3);
  run.set("x", {2, 3});
  for (int r = 0; r < 3; ++r) run.set("w", Values{r + 1.0, 5.0}, r);
  run.run();
  for (int r = 0; r < 3; ++r) {
    CHECK(run.output("loss", r)[0] == 2 * 6 + 3 * 15);
    CHECK(run.output("gradient.x", r) == Values{6, 15});
    CHECK(run.output("gradient.w", r) == Values{2, 3});
  }
}

TEST_CASE("text, words and files keep axes, and those of the data axis alone are what they were") {
  Builder b;
  Var const w = b.parameter("w", {3}, zeros(), false, Where::current(), parts);
  b.output("y", all_reduce(partial(w * b.input("d", DType::float32, {3}, Replication::varying), tensor), tensor));
  Graph const graph = canonical(b.graph());
  std::string const text = to_string(graph);
  CHECK(test::contains(text, "varying(tensor)"));
  CHECK(test::contains(text, "varying partial(tensor)"));
  CHECK(test::contains(text, ") {0, 1} : float32 (3,) varying  @"));
  CHECK(same(thaw(words_of(graph)), graph));
  CHECK(same(read(write(graph)), graph));
  Builder plain;
  plain.output("y", all_reduce(plain.input("x", DType::float32, {3}, Replication::varying)));
  CHECK(test::contains(to_string(canonical(plain.graph())), "all_reduce(%0) {0} : float32 (3,)"));
}

TEST_CASE("a StableHLO module has one group of replicas, and refuses what crosses another axis") {
  Builder b;
  b.output("y", all_reduce(b.parameter("w", {3}, zeros(), false, Where::current(), parts), tensor));
  REQUIRE_ERROR(to_stablehlo(canonical(b.graph()), {.ranks = 2}), ErrorKind::unavailable,
                "it crosses ranks along the tensor axis");
}
