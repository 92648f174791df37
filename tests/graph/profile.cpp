// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/core/json_text.hpp> <tutti/graph/scopes.hpp>
// Covers: <tutti/graph/roofline.hpp>
#include <tutti/graph/profile.hpp>

#include <tutti/graph/amp.hpp>
#include <tutti/graph/decompose.hpp>
#include <tutti/graph/file.hpp>
#include <tutti/graph/grad.hpp>
#include <tutti/graph/print.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/graph/repeat.hpp>

#include "small_gpt.hpp"
#include "support/catch.hpp"

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::graph;
using namespace tutti::test;

namespace {

/// The summed cost of every kind of step.
std::map<StepKind, StepCost> costs(Program const& program) {
  std::map<StepKind, StepCost> sums;
  for (Step const& step : program.list.steps) {
    StepCost const cost = cost_of(step);
    sums[step.kind].flops += cost.flops;
    sums[step.kind].bytes += cost.bytes;
  }
  return sums;
}

}  // namespace

TEST_CASE("costs of a training step are those of its shapes") {
  SmallSizes const s{.layers = 3, .batch = 2, .tokens = 7, .channels = 12, .vocabulary = 19, .padded = 23, .heads = 3};
  auto const sums = costs(compile(small_graph(s, SmallPass::whole)));
  // Per layer and token 12 C^2 weights, each used in three products of two operations.
  CHECK(sums.at(StepKind::gemm).flops == 3.0 * 14 * 6 * 12 * 12 * 12);
  CHECK(sums.at(StepKind::linear_cross_entropy).flops == 14.0 * 6 * 19 * 12);
  // Scores at or below the diagonal: 28 of a head and sequence; four operations each and channel of a head.
  CHECK(sums.at(StepKind::attention).flops == 3.0 * 2 * 3 * 28 * 4 * 4);
  CHECK(sums.at(StepKind::attention_gradient).flops == 2.5 * sums.at(StepKind::attention).flops);
  // 28 bytes of every parameter, and four scalars a call.
  double parameters = 0;
  Graph const graph = small_graph(s, SmallPass::whole);
  for (Parameter const& parameter : graph.parameters)
    parameters += static_cast<double>(graph.shape(parameter.node).size());
  double scalars = 0;
  for (Step const& step : compile(graph).list.steps) scalars += step.kind == StepKind::adamw ? 16 : 0;
  CHECK(sums.at(StepKind::adamw).bytes == 28 * parameters + scalars);
  // A collective is moved between its start and its wait, whose own times say nothing about it.
  auto const reduced = costs(compile(small_graph(s, SmallPass::whole, true)));
  CHECK(reduced.at(StepKind::all_reduce_start).bytes == 0);
  CHECK(reduced.at(StepKind::all_reduce_wait).bytes == 0);
}

TEST_CASE("the least time of a step is that of its products at their rate, or of its bytes") {
  Roofline const roof{.float32 = 100, .bfloat16 = 200, .bytes = 10};
  Step step;
  CHECK(roof.least(step, {.flops = 1000, .bytes = 50}) == 10);
  CHECK(roof.least(step, {.flops = 1000, .bytes = 500}) == 50);
  step.product = DType::bfloat16;
  CHECK(roof.least(step, {.flops = 1000, .bytes = 10}) == 5);
  CHECK(Roofline{}.least(step, {.flops = 1000, .bytes = 10}) == 0);
}

TEST_CASE("a table adds up equal operations of one line, and a trace has the last run alone") {
  StepList list;
  for (int i = 0; i < 3; ++i) {
    Step step;
    step.kind = StepKind::gemm;
    step.where = i < 2 ? "model.cpp:7" : "model\\\"odd\".cpp:9";
    step.layer = i;
    step.product = DType::bfloat16;
    step.reads = {
        contiguous_ref(0, 0, DType::float32, {4, 5}), contiguous_ref(1, 0, DType::float32, {5, 6}), {}, {}, {}};
    step.writes = {contiguous_ref(2, 0, DType::float32, {4, 6}), {}};
    list.steps.push_back(std::move(step));
  }
  Profile profile(list);
  for (std::int64_t run = 0; run < 3; ++run) {
    std::int64_t const begin = 1'000'000 * (run + 1), took = run == 0 ? 15'000 : 10'000;  // the first does not count
    profile.begin_run(begin);
    for (std::int64_t s = 0; s < 3; ++s)
      profile.add(static_cast<std::size_t>(s), begin + s * 20'000, begin + s * 20'000 + took);
    CHECK(profile.nanoseconds(1) == (run == 0 ? 15'000 : 10'000 * run));
  }
  // 240 operations of a step in 10 microseconds: 0.024 GFLOP/s, half of the peak of 0.048.
  std::string const table = profile.table({.float32 = 1, .bfloat16 = 0.048e9, .bytes = 0});
  INFO(table);
  std::istringstream lines(table);
  std::string head, first, second, all;
  std::getline(lines, head), std::getline(lines, first), std::getline(lines, second), std::getline(lines, all);
  CHECK(contains(first, "gemm 4x6x5 bfloat16"));
  CHECK(contains(first, "2      0.020   66.7"));
  CHECK(contains(first, "50.0  model.cpp:7"));
  CHECK(contains(second, "1      0.010   33.3"));
  CHECK(contains(all, "3      0.030  100.0"));
  CHECK(contains(all, "50.0"));
  std::string const trace = profile.trace(5);
  INFO(trace);
  CHECK(contains(trace, "\"pid\":5,\"tid\":0,\"ts\":20.000,\"dur\":10.000"));
  CHECK(contains(trace, "model\\\\\\\"odd\\\".cpp:9"));
  CHECK(trace.find("gemm 4x6x5 bfloat16") != trace.rfind("gemm 4x6x5 bfloat16"));
  CHECK_FALSE(Profile().measures());
  CHECK(json_text("a\"b\\c\n") == "a\\\"b\\\\c?");
}

TEST_CASE("ranges that are named while a model is traced hold its steps in the trace, loops and gradients included") {
  auto const traced = [](bool named) {
    Builder b;
    auto const in = [&](Builder& builder, char const* name) {
      return named ? std::unique_ptr<Scopes::Range>(new Scopes::Range(builder.scope(name))) : nullptr;
    };
    Var const x = b.input("x", DType::float32, {4, 3}), w = b.parameter("w", {3, 3}, normal(0.5)),
              v = b.parameter("v", {2, 3, 3}, normal(0.5), true);
    auto outer = in(b, "model");
    auto inner = in(b, "embedding");
    Var const h = tanh(dot_general(x, w, {1}, {0}));
    inner = nullptr;
    Scan loop(b, h, 2, Where::current());
    Var const weight = loop.slice(v, "weight");
    auto mix = in(*weight.builder, "mix");
    Var const next = dot_general(loop.carried(), weight, {1}, {0});
    mix = nullptr;
    Var const last = loop.finish(next);
    outer = nullptr;
    b.output("loss", mean_all(last * last));
    return grad(canonical(b.graph()));
  };
  Graph const graph = traced(true), plain = traced(false);
  CHECK(to_string(graph) == to_string(plain));
  Graph const again = read(write(graph));
  for (Id id = 0; id < graph.size(); ++id) CHECK(again.scope(id) == graph.scope(id));
  Id const loss = graph.find_output("loss");
  CHECK(graph.scope(loss) == "");
  CHECK(graph.file(loss) == "profile.cpp");
  std::set<std::string> scopes;
  Program const program = compile(decompose(graph));
  for (Step const& step : program.list.steps) {
    scopes.insert(step.scope);
    if (!step.where.empty()) CHECK(step.where.starts_with("profile.cpp:"));
  }
  CHECK(scopes == std::set<std::string>{"", "model/*/mix", "model/embedding"});  // the loop itself is no step

  // One run in which every step takes 10 microseconds.
  StepList list;
  for (auto const& [scope, layer] : std::vector<std::pair<char const*, int>>{
           {"model/embedding", -1}, {"model/*/mix", 0}, {"model/*/mix", 0}, {"model/*/mix", 1}, {"", -1}, {"", 2}}) {
    Step step;
    step.kind = StepKind::fill;
    step.scope = scope;
    step.layer = layer;
    step.where = "model.cpp:7";
    list.steps.push_back(std::move(step));
  }
  Profile profile(list);
  profile.begin_run(1000);
  for (std::int64_t s = 0; s < 6; ++s) profile.add(static_cast<std::size_t>(s), 1000 + s * 10'000, 11'000 + s * 10'000);
  std::string const trace = profile.trace(1);
  INFO(trace);
  auto const range = [](char const* name, char const* begin, char const* length) {
    return concat("{\"name\":\"", name, "\",\"cat\":\"range\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":", begin,
                  ",\"dur\":", length, "}");
  };
  std::size_t at = 0;
  for (std::string const& one :
       {range("model", "0.000", "40.000"), range("embedding", "0.000", "10.000"), range("layer 0", "10.000", "20.000"),
        range("mix", "10.000", "20.000"), range("layer 1", "30.000", "10.000"), range("mix", "30.000", "10.000"),
        range("layer 2", "50.000", "10.000"), std::string("\"name\":\"fill\"")}) {
    INFO(one);
    std::size_t const found = trace.find(one, at);
    CHECK(found != trace.npos);
    at = found == trace.npos ? at : found;
  }
  CHECK(contains(profile.table(), "model.cpp:7  model/*/mix"));
  Builder b;
  for (char const* name : {"", "*", "a\nb", "a @ b"})
    REQUIRE_ERROR(b.scope(name), ErrorKind::invalid_argument, "is no name of a range");
}
