// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/graph/interpreter_composites.hpp> <tutti/graph/interpreter_kernels.hpp> <tutti/graph/ops_indexing.hpp>
// Covers: <tutti/graph/interpreter_attention.hpp> <tutti/graph/interpreter_losses.hpp>
// Covers: <tutti/graph/interpreter_call.hpp>
// The oracle itself: values worked out by hand, and what it refuses. Composites are checked against primitives in
// decompose.cpp.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/interpreter.hpp>
#include <tutti/graph/param.hpp>

#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::graph;

namespace {

/// The values of f(x) for one input.
naive::Values run(Shape const& shape, naive::Values const& x, Var (*f)(Var), DType dtype = DType::float32) {
  Builder b;
  b.output("y", f(b.input("x", dtype, shape)));
  Interpreter interpreter(canonical(b.graph()));
  interpreter.set("x", x);
  interpreter.run();
  return interpreter.output("y");
}
using Values = naive::Values;

}  // namespace

TEST_CASE("primitives give what one works out by hand") {
  Values const six{1, 2, 3, 4, 5, 6};
  CHECK(run({2, 3}, six, [](Var x) { return transpose(x, {1, 0}); }) == Values{1, 4, 2, 5, 3, 6});
  CHECK(run({2, 3}, six, [](Var x) { return slice(x, {0, 0}, {2, 3}, {1, 2}); }) == Values{1, 3, 4, 6});
  CHECK(run({2}, {1, 2}, [](Var x) { return pad(x, {1}, {1}, {1}, 9); }) == Values{9, 1, 9, 2, 9});
  CHECK(run({2}, {1, 2}, [](Var x) { return broadcast_in_dim(x, {2, 2}, {0}); }) == Values{1, 1, 2, 2});
  CHECK(run({2}, {1, 2}, [](Var x) { return broadcast_to(x, {2, 2}); }) == Values{1, 2, 1, 2});
  CHECK(run({2, 3}, six, [](Var x) { return reduce_sum(x, {0}); }) == Values{5, 7, 9});
  CHECK(run({2, 3}, six, [](Var x) { return reduce_max(x, {1}); }) == Values{3, 6});
  CHECK(run({0, 2}, {}, [](Var x) { return reduce_sum(x, {0}); }) == Values{0, 0});
  CHECK(run({2, 3}, six, [](Var x) { return concatenate({x, x}, 1); }) == Values{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(run({2, 3}, six, [](Var x) { return dot_general(x, x, {1}, {1}); }) == Values{14, 32, 32, 77});
  CHECK(run({3}, {-1.5, 0, 2.7}, [](Var x) { return convert(x, DType::int32); }) == Values{-1, 0, 2});
  CHECK(run({3}, {-1, 0, 300}, [](Var x) {
          return convert(minimum(convert(x, DType::uint8), 7.0), DType::float32);
        }) == Values{0, 0, 7});
  CHECK(run({3}, {-1, 0, -128}, [](Var x) {
          return convert(minimum(convert(x, DType::int8), -128.0), DType::int64);
        }) == Values{-128, -128, -128});
  CHECK(run({3}, {-1e9, NAN, 300}, [](Var x) { return convert(x, DType::int8); }) == Values{-128, 0, 127});
  CHECK(run({3}, {-1, 300, 7}, [](Var x) { return convert(convert(x, DType::int32), DType::uint8); }) ==
        Values{255, 44, 7});
  CHECK(run({3}, {7, -7, 1}, [](Var x) { return x / 2; }, DType::int32) == Values{3, -3, 0});
  CHECK(run({3}, {-1, 0, 2}, [](Var x) { return select(less_equal(x, 0.0), x * 10, x); }) == Values{-10, 0, 2});
  CHECK(run({3}, {5, 6, 7}, [](Var x) { return gather(x, iota(*x.builder, {2}, 0) + 1); }) == Values{6, 7});
  CHECK(run({2}, {5, 6}, [](Var x) {
          return scatter_add(x, constant(*x.builder, 1, {3}, DType::int32), constant(*x.builder, 2, {3}));
        }) == Values{5, 12});
  CHECK(run({4}, {1, 2, 3, 4},
            [](Var x) { return dynamic_slice(x, {constant(*x.builder, 9, {}, DType::int32)}, {2}); }) == Values{3, 4});
  CHECK(run({3}, {1, 2, 3}, [](Var x) {
          return dynamic_update_slice(x, x * 0, {constant(*x.builder, -4, {}, DType::int32)});
        }) == Values{0, 0, 0});
  CHECK(run({2, 2}, {1, 2, 3, 4}, [](Var x) { return square_sum(x); }) == Values{30});
}

TEST_CASE("random bits are Philox of seed, step, stream and position") {
  Builder b;
  Var const seed = b.scalar("seed", DType::int64), step = b.scalar("step", DType::int64),
            stream = b.scalar("stream", DType::int64);
  b.output("bits", rng_bits({2, 3}, seed, step, stream));
  Interpreter interpreter(canonical(b.graph()));
  std::int64_t const big = (std::int64_t{5} << 32) + 77;
  interpreter.set("seed", {static_cast<double>(big)});
  interpreter.set("step", {3});
  interpreter.set("stream", {9});
  interpreter.run();
  auto const first = philox4x32({0, 0, 3, 9}, {77, 5}), second = philox4x32({1, 0, 3, 9}, {77, 5});
  for (std::size_t i = 0; i < 6; ++i) CHECK(interpreter.output("bits")[i] == (i < 4 ? first[i] : second[i - 4]));
}

TEST_CASE("updates take effect after the run and read the values before it") {
  Builder b;
  Var const p = b.parameter("p", {2}, ones()), s = b.state("s", {2});
  b.update(p, p + s + 1.0);
  b.update(s, p);
  b.output("p", p);
  Interpreter interpreter(canonical(b.graph()));
  interpreter.run();
  CHECK(interpreter.output("p") == Values{1, 1});
  CHECK(interpreter.get("p") == Values{2, 2});
  CHECK(interpreter.get("s") == Values{1, 1});
  interpreter.run();
  CHECK(interpreter.get("p") == Values{4, 4});
}

TEST_CASE("ranks run in step: every collective on 1, 2 and 3 ranks") {
  for (int ranks : {1, 2, 3}) {
    Builder b;
    Var const x = b.input("x", DType::float32, {ranks}, Replication::varying);
    b.output("sum", all_reduce(x));
    b.output("avg", all_reduce(x, comm::PortOp::avg));
    b.output("root", broadcast(x, ranks - 1));
    b.output("all", all_gather(x, ranks));
    b.output("part", reduce_scatter(x, ranks));
    b.output("turned", all_to_all(x * 10.0 + iota(b, {ranks}, 0, DType::float32), ranks));
    b.output("next", send_receive(x, ranks, 1));
    b.output("behind", send_receive(x, ranks, -1, false));
    b.output("rank", rank_number(b));
    Interpreter interpreter(canonical(b.graph()), ranks);
    for (int r = 0; r < ranks; ++r) interpreter.set("x", Values(static_cast<std::size_t>(ranks), r + 1), r);
    interpreter.run();
    double const sum = ranks * (ranks + 1) / 2.0;
    for (int r = 0; r < ranks; ++r) {
      CHECK(interpreter.output("sum", r)[0] == sum);
      CHECK(interpreter.output("avg", r)[0] == sum / ranks);
      CHECK(interpreter.output("root", r)[0] == ranks);
      CHECK(interpreter.output("all", r).size() == static_cast<std::size_t>(ranks * ranks));
      CHECK(interpreter.output("all", r).back() == ranks);
      CHECK(interpreter.output("part", r) == Values{sum});
      CHECK(interpreter.output("rank", r)[0] == r);
      Values blocks;  // element r of every rank
      for (int from = 0; from < ranks; ++from) blocks.push_back(10.0 * (from + 1) + r);
      CHECK(interpreter.output("turned", r) == blocks);
      CHECK(interpreter.output("next", r)[0] == (r + ranks - 1) % ranks + 1);
      CHECK(interpreter.output("behind", r)[0] == (r + 1 < ranks ? r + 2 : 0));
    }
  }
}

TEST_CASE("what is missing, of wrong size or outside a table is named") {
  Builder b;
  Var const x = b.input("x", DType::int32, {2});
  b.output("y", gather(b.parameter("table", {3, 1}, ones()), x));
  b.output("z", all_gather(b.input("w", DType::float32, {1}, Replication::varying), 2));
  Interpreter interpreter(canonical(b.graph()));
  REQUIRE_ERROR(interpreter.set("nothing", {1}), ErrorKind::invalid_argument, "\"nothing\"");
  REQUIRE_ERROR(interpreter.set("x", {1}), ErrorKind::shape, "1 values for \"x\" of shape (2,)");
  REQUIRE_ERROR(interpreter.run(), ErrorKind::invalid_argument, "\"x\" has no value");
  interpreter.set("x", {0, 3});
  interpreter.set("w", {0});
  REQUIRE_ERROR(interpreter.run(), ErrorKind::out_of_range, "index 3 is outside the table of 3 rows");
  interpreter.set("x", {0, 2});
  REQUIRE_ERROR(interpreter.run(), ErrorKind::configuration, "made for 2 ranks, here are 1");
  REQUIRE_ERROR(interpreter.output("nothing"), ErrorKind::invalid_argument, "no output \"nothing\"");
}
