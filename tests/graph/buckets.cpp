// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives between other operations, in any order: planned, run by ranks, against the interpreter's ranks.

#include "graph/random_graphs.hpp"
#include "graph/run_graph.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/graph/executor.hpp>

#include <vector>

using namespace tutti;
using namespace tutti::graph;

namespace {

/// What every rank of `ranks` has after a run.
std::vector<test::Results> run_ranks(Graph const& graph, int ranks, CompileOptions const& compile, int runs = 1) {
  std::vector<test::Results> results(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    auto const port = comm::port(communicator);
    test::RunOptions options;
    options.compile = compile;
    options.port = port.get();
    options.salt = static_cast<std::uint64_t>(communicator.rank());
    options.runs = runs;
    results[static_cast<std::size_t>(communicator.rank())] = test::run_executor(graph, options);
  });
  return results;
}

void check_ranks(Graph const& graph, int ranks, CompileOptions const& compile, int runs = 1) {
  INFO(ranks << " ranks, fuse " << compile.fuse << ", share " << compile.share << ", buckets of "
             << compile.bucket_bytes << " bytes");
  test::RunOptions options;
  options.runs = runs;
  auto const results = run_ranks(graph, ranks, compile, runs);
  for (int rank = 0; rank < ranks; ++rank)
    test::check_against_interpreter(graph, results[static_cast<std::size_t>(rank)], options, 1e-4, ranks, rank);
  for (auto const& [name, bytes] : results[0])  // what the graph calls replicated is so to the last bit
    if (name.starts_with("state ") || graph.replication(graph.find_output(name)) == Replication::replicated)
      for (auto const& other : results) CHECK((other.at(name) == bytes));
}

}  // namespace

TEST_CASE("a reduction of a reduction starts when the first one is there, on one rank and on several") {
  Builder b;
  Var const x = b.input("x", DType::float32, {3, 5}, Replication::varying);
  auto const averaged = [](Var v) { return all_reduce(vary(v, comm::PortOp::avg), comm::PortOp::avg); };
  Var const once = averaged(x), twice = averaged(once);
  b.output("twice", twice);
  b.output("thrice", averaged(reshape(twice, {15})));
  b.output("sum of both", all_reduce(vary(once), comm::PortOp::sum));
  b.output("part", averaged(slice(once, {1, 0}, {2, 5})));
  for (int ranks : {1, 2, 3})
    for (std::int64_t bytes : {0, 128, 1 << 20})
      for (bool share : {true, false}) check_ranks(b.graph(), ranks, {true, share, bytes});
}

TEST_CASE("reductions along two axes of a mesh are gathered apart, and each goes over its own ranks") {
  Builder b;
  Replications const own = Replications(Replication::varying).with(graph::MeshAxis::tensor, Replication::varying);
  Var const x = b.input("x", DType::float32, {3, 5}, own);
  Var sum = x;
  List<std::string> names;
  auto const give = [&](std::string name, Var v) {
    names.push_back(std::move(name));
    b.output(names.back(), v);
  };
  for (int i = 0; i < 4; ++i) {
    std::string const n = std::to_string(i);
    Var const v = sum * (i + 0.5);
    give("data" + n, all_reduce(v));
    give("tensor" + n, all_reduce(v, graph::MeshAxis::tensor, comm::PortOp::avg));
    give("both" + n, all_reduce(all_reduce(v, graph::MeshAxis::tensor)));
    give("rows" + n, all_gather(v, graph::MeshAxis::tensor, 2));
    sum = sum + all_reduce(v, graph::MeshAxis::tensor) * 0.1;
  }
  give("place", rank_number(b, graph::MeshAxis::tensor));
  Graph const graph = canonical(b.graph());
  auto const input = [](int rank) {
    std::vector<float> values(15);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(rank + 1) / static_cast<float>(i + 2);
    return values;
  };
  Interpreter reference(graph, 4, 2);
  for (int rank = 0; rank < 4; ++rank) {
    auto const values = input(rank);
    reference.set("x", {values.begin(), values.end()}, rank);
  }
  reference.run();
  for (std::int64_t bytes : {0, 256, 1 << 20}) {
    Program const program = compile(graph, {true, true, bytes});
    CHECK(sent_bytes(program.list, graph::MeshAxis::tensor) > 0);
    std::vector<double> worst(4);
    threads::run(4, [&](Communicator<Threads>& communicator) {
      int const rank = communicator.rank();
      Communicator<Threads> lines[]{communicator.split(rank % 2, rank), communicator.split(rank / 2, rank)};
      auto const data = comm::port(lines[0]), tensor = comm::port(lines[1]);
      exec::Context context({.threads = 1});
      State state(graph);
      Executor run(context, program, state, {.port = data.get(), .tensor = tensor.get()});
      auto const values = input(rank);
      run.set("x", TensorView<float const>(values.data(), Shape{3, 5}));
      for (int again = 0; again < 2; ++again) run.run();
      double& gap = worst[static_cast<std::size_t>(rank)];
      for (std::string const& name : names) {
        auto const& expected = reference.output(name, rank);
        if (name == "place") gap = std::max(gap, std::abs(run.value(name) - expected[0]));
        else
          for (std::size_t i = 0; i < expected.size(); ++i)
            gap = std::max(gap, std::abs(double{run.output<float>(name).elements()[i]} - expected[i]));
      }
    });
    for (double gap : worst) CHECK(gap < 1e-5);
  }
}

TEST_CASE("random graphs with collectives are planned, and run as the interpreter runs them") {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (int ranks : {1, 2, 3}) {
      Graph const graph = test::RandomGraph(seed, ranks).draw();
      INFO("seed " << seed << "\n" << to_string(graph));
      std::int64_t const bytes[] = {0, 300, 1 << 20};
      check_ranks(graph, ranks, {seed % 2 == 0, seed % 4 < 2, bytes[seed % 3]});
    }
}

TEST_CASE("random graphs with collectives have plans that hold, for every way of making them") {
  for (std::uint64_t seed = 1000; seed < 1300; ++seed)
    for (int ranks : {1, 2, 3}) {
      Graph const graph = test::RandomGraph(seed, ranks).draw();
      INFO("seed " << seed << ", " << ranks << " ranks\n" << to_string(graph));
      for (bool fuse : {true, false})
        for (bool share : {true, false})
          for (std::int64_t bytes : {0, 64, 300, 1 << 20})
            for (int sections : {1, ranks}) {
              CompileOptions options{fuse, share, bytes};
              options.division = {0, sections, true};
              REQUIRE_NOTHROW(compile(graph, options));
            }
    }
}

TEST_CASE("updates read what fields held before the run, whichever is written first") {
  Builder b;
  Var const x = b.state("x", {4, 4}), y = b.state("y", {4, 4}), z = b.state("z", {4, 4}),
            rows = b.state("rows", {4, 4});
  b.update(x, y);
  b.update(y, x);
  b.update(z, transpose(z, {1, 0}));
  b.update(rows, concatenate({slice(rows, {1, 0}, {4, 4}), slice(x, {0, 0}, {1, 4})}, 0));
  for (bool fuse : {true, false})
    for (bool share : {true, false}) check_ranks(b.graph(), 1, {fuse, share, 0}, 3);
}
