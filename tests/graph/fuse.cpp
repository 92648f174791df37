// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// From graph to steps: what is fused, shared and bucketed in a training step, and that every variant's plan holds.
// Covers: <tutti/graph/lower.hpp> <tutti/graph/lower_arrays.hpp> <tutti/graph/lower_composites.hpp>
// Covers: <tutti/graph/lower_collectives.hpp> <tutti/graph/lower_custom.hpp> <tutti/graph/lower_layers.hpp>
// Covers: <tutti/graph/merged_chain.hpp>
// Covers: <tutti/graph/emit.hpp> <tutti/graph/rewrite.hpp> <tutti/graph/share.hpp> <tutti/graph/buckets.hpp>
// Covers: <tutti/graph/program.hpp> <tutti/graph/compile.hpp> <tutti/graph/division.hpp>
// Covers: <tutti/graph/lower_values.hpp>

#include "graph/small_gpt.hpp"
#include "support/catch.hpp"

#include <tutti/graph/program.hpp>

#include <algorithm>

using namespace tutti;
using namespace tutti::graph;
using test::SmallPass;
using test::SmallSizes;

namespace {

template <class F>
int count(Program const& program, F&& f) {
  return static_cast<int>(std::count_if(program.list.steps.begin(), program.list.steps.end(), f));
}
int count(Program const& program, StepKind kind) {
  return count(program, [&](Step const& s) { return s.kind == kind; });
}
bool in_state(Program const& program, Ref const& ref) {
  return program.list[program.list.home(ref.buffer).root].pool == Pool::state;
}
std::int64_t address(Program const& program, Ref const& ref) {
  return program.plan.offset[static_cast<std::size_t>(ref.buffer)] + ref.offset;
}

}  // namespace

TEST_CASE("a training step has no pass over a large tensor that a kernel could have done") {
  for (std::int64_t layers : {1, 2, 3}) {
    SmallSizes sizes;
    sizes.layers = layers;
    Program const program = compile(test::small_graph(sizes, SmallPass::whole));
    int const l = static_cast<int>(layers);
    CAPTURE(layers, to_string(program));
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::gemm && s.gelu && s.writes[1]; }) == l);
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::gemm && s.reads[3]; }) == 2 * l);
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::gemm && s.reads[4]; }) == l);
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::layer_norm_gradient && s.reads[5]; }) == 2 * l);
    CHECK(count(program, StepKind::gemm) == 12 * l);
    CHECK(count(program, StepKind::copy) == 0);
    CHECK(count(program, StepKind::fill) == 0);
    CHECK(count(program,
                [](Step const& s) { return s.kind == StepKind::elementwise && s.writes[0].shape.size() > 1; }) == 0);
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::embedding_gradient && s.reads[2]; }) == 1);
  }
}

TEST_CASE("a block of the LLaMA family has no pass over a tensor that a kernel could have done") {
  for (bool differentiated : {false, true}) {
    Builder b;
    Var const x = b.input("x", DType::float32, {2, 16, 32}), w = b.input("w", DType::float32, {32});
    Var const n = rms_norm(x, w), packed = b.input("packed", DType::float32, {2, 16, 64});
    Var const gate = linear(n, b.input("gate", DType::float32, {48, 32})),
              up = linear(n, b.input("up", DType::float32, {48, 32}));
    Var const y = x + linear(swiglu(gate, up), b.input("down", DType::float32, {32, 48}));
    Rotations const by{b.input("cosine", DType::float32, {16, 4}), b.input("sine", DType::float32, {16, 4})};
    b.output("rotated", rotary(slice(packed, {0, 0, 32}, {2, 16, 64}), by));
    b.output("y", y);
    if (differentiated) b.output("dx", gradients(sum_all(y * b.input("g", DType::float32, {2, 16, 32})), {x})[0]);
    Program const program = compile(canonical(b.graph()));
    CAPTURE(differentiated, to_string(program));
    CHECK(count(program, StepKind::copy) == 0);  // rotary reads the packed rows where they lie
    CHECK(count(program, StepKind::elementwise) == 0);
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::rms_norm && bool(s.writes[1]); }) ==
          (differentiated ? 1 : 0));
    CHECK(count(program, [](Step const& s) { return s.kind == StepKind::rms_norm_gradient && bool(s.reads[4]); }) ==
          (differentiated ? 1 : 0));
  }
}

TEST_CASE("a loss without gradients keeps nothing for them") {
  Program const program = compile(test::small_graph({}, SmallPass::loss));
  CHECK(count(program, [](Step const& s) { return s.kind == StepKind::layer_norm && (s.writes[1] || s.writes[2]); }) ==
        0);
  CHECK(count(program, [](Step const& s) { return s.kind == StepKind::attention && s.writes[1]; }) == 0);
  CHECK(count(program, [](Step const& s) { return s.kind == StepKind::gemm && s.writes[1]; }) == 0);
  CHECK(count(program, [](Step const& s) {
          return s.kind == StepKind::linear_cross_entropy && (s.writes[1] || s.writes[2] || s.writes[3]);
        }) == 0);
  SmallSizes deep;
  deep.layers = 12;
  CHECK(compile(test::small_graph(deep, SmallPass::loss)).plan.arena_bytes == program.plan.arena_bytes);
}

TEST_CASE("backward frees layer by layer: activations and gradients of different layers share memory") {
  SmallSizes sizes;
  sizes.layers = 8;
  sizes.channels = 24;
  Program const program = compile(test::small_graph(sizes, SmallPass::whole));
  CHECK(program.plan.arena_bytes < program.plan.unshared_bytes * 3 / 4);
}

TEST_CASE("every combination of fusing and sharing gives a plan that holds") {
  for (SmallPass pass :
       {SmallPass::loss, SmallPass::gradients, SmallPass::whole, SmallPass::first, SmallPass::middle, SmallPass::last})
    for (bool fuse : {false, true})
      for (bool share : {false, true})
        for (bool reduce : {false, true}) {
          if (reduce && (pass == SmallPass::loss || pass == SmallPass::first || pass == SmallPass::middle)) continue;
          Program const program = compile(test::small_graph({}, pass, reduce, 2), {fuse, share, 1 << 10});
          CAPTURE(static_cast<int>(pass), fuse, share, reduce);
          validate(program.list, program.plan);
          CHECK(count(program, StepKind::all_reduce) == 0);
          CHECK((count(program, StepKind::all_reduce_start) > 0) == reduce);
        }
}

TEST_CASE("micro-steps add into the accumulators where they lie, and the first one does not read them") {
  Program const first = compile(test::small_graph({}, SmallPass::first, false, 3));
  Program const middle = compile(test::small_graph({}, SmallPass::middle, false, 3));
  CAPTURE(to_string(middle));
  CHECK(count(first, StepKind::copy) == 0);
  CHECK(count(middle, StepKind::copy) == 0);
  for (Program const* program : {&first, &middle})
    for (Step const& s : program->list.steps)
      if (s.kind == StepKind::gemm && in_state(*program, s.writes[0])) {
        CHECK(bool(s.reads[3]) == (program == &middle));
        if (!s.reads[3]) continue;
        CHECK(in_state(*program, s.reads[3]));
        CHECK(address(*program, s.reads[3]) == address(*program, s.writes[0]));
      }
  auto const in_place = [](Program const& p) {
    return count(p, [&](Step const& s) { return s.kind == StepKind::gemm && in_state(p, s.writes[0]); });
  };
  CHECK(in_place(first) == 8);
  CHECK(in_place(middle) == 8);
}

TEST_CASE("a layer's reduction starts before the next layer's backward and is awaited before the first use") {
  SmallSizes sizes;
  sizes.layers = 3;
  Program const program = compile(test::small_graph(sizes, SmallPass::whole, true), {true, true, 1});
  auto const& steps = program.list.steps;
  CAPTURE(to_string(program));
  std::vector<std::size_t> started, awaited;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].kind == StepKind::all_reduce_start) {
      REQUIRE(steps[s].slot == static_cast<std::int32_t>(started.size()));
      started.push_back(s);
    }
    if (steps[s].kind == StepKind::all_reduce_wait) awaited.push_back(s);
  }
  CHECK(started.size() == awaited.size());
  CHECK(started.size() == 3 * 12 + 5);  // one byte: nothing is merged
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (steps[s].kind == StepKind::attention_gradient)
      for (std::size_t start : started)
        if (steps[start].layer > steps[s].layer) CHECK(start < s);
  CHECK(awaited.front() > started.back() - 5);
  // Gradients are computed in their buckets; the reduced loss alone is copied out of one.
  CHECK(count(program, [](Step const& s) {
          return s.kind == StepKind::copy && (s.writes.size() > 1 || s.writes[0].shape.size() > 1);
        }) == 0);
  for (std::size_t start : started)
    CHECK(program.list[program.list.home(steps[start].reads[0].buffer).root].pool == Pool::communicator);
}

TEST_CASE("buckets respect their limit, merge small layers, and hold every gradient once") {
  SmallSizes sizes;
  sizes.layers = 4;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  std::int64_t total = 0;
  for (auto const& parameter : graph.parameters) total += graph.shape(parameter.node).size() * 4;
  int previous = 1 << 30;
  for (std::int64_t limit : {1, 1000, 4096, 16384, 1 << 22}) {
    Program const program = compile(graph, {true, true, limit});
    std::int64_t reduced = 0;
    for (Step const& s : program.list.steps) {
      if (s.kind != StepKind::all_reduce_start) continue;
      std::int64_t const bytes = sent_elements(s) * 4;
      reduced += bytes;
      std::int64_t const largest = align_up(sizes.channels * sizes.channels * 4 * 4);
      CHECK(bytes <= std::max(limit, largest));
    }
    int const buckets = count(program, StepKind::all_reduce_start);
    CHECK(buckets <= previous);
    previous = buckets;
    CHECK(reduced >= total + 4);
    CHECK(reduced <= total + 64 * (4 * 12 + 5));
  }
  CHECK(previous == 1);
}

TEST_CASE("elementwise work of one shape becomes one chain with broadcasts read in place") {
  Builder builder;
  Var const x = builder.input("x", DType::float32, {5, 9}), row = builder.input("row", DType::float32, {9});
  Var y = exp(x * 2.0 + row) / (1.0 + exp(x));
  y = tanh(y) - row;
  builder.output("y", y);
  builder.output("z", sqrt(y * y + 1.0));
  Program const program = compile(builder.graph());
  CAPTURE(to_string(program));
  CHECK(program.list.steps.size() == 1);
  CHECK(program.list.steps[0].writes.size() == 2);
  CHECK(program.list.steps[0].reads.size() == 2);
  CHECK(program.plan.arena_bytes == 0);
}

TEST_CASE("conversions round where they stand: chains stop at them") {
  Builder builder;
  Var const x = builder.input("x", DType::float32, {100});
  builder.output("y", convert(convert(x * 3.0, DType::bfloat16), DType::float32) + 1.0);
  Program const program = compile(builder.graph());
  CHECK(program.list.steps.size() == 2);
}

TEST_CASE("chains respect the limits of the kernel") {
  Builder builder;
  List<Var> inputs;
  for (int i = 0; i < 40; ++i) inputs.push_back(builder.input("x" + std::to_string(i), DType::float32, {3}));
  Var sum = inputs[0];
  for (std::size_t i = 1; i < 40; ++i) sum = sum * 1.5 + inputs[i];
  builder.output("sum", sum);
  Var deep = inputs[0];
  for (int i = 0; i < 200; ++i) deep = tanh(deep);
  builder.output("deep", deep);
  Program const program = compile(builder.graph());
  CHECK(program.list.steps.size() >= 6);
  for (Step const& s : program.list.steps) {
    CHECK(s.reads.size() <= 16);
    CHECK(s.instructions.size() <= 64);
    CHECK(s.writes.size() <= 8);
  }
}

TEST_CASE("the step table names operation, shapes, memory and the line that asked for it") {
  Program const program = compile(test::small_graph({}, SmallPass::whole, true));
  std::string const table = to_string(program);
  for (char const* part : {"attention_gradient", "blocks.fc.weight(48, 12)", "tokens:int32(2, 7)", "[gelu]",
                           "small_gpt.hpp:", "all_reduce_start", "arena", "@0"})
    CHECK(test::contains(table, part));
  CHECK(std::count(table.begin(), table.end(), '\n') == static_cast<std::ptrdiff_t>(program.list.steps.size()) + 2);
}

TEST_CASE("compiling twice gives the same steps and the same plan") {
  Graph const graph = test::small_graph({}, SmallPass::whole, true);
  CHECK(to_string(compile(graph)) == to_string(compile(graph)));
}
