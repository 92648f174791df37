// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives between other operations, in any order: planned, run by ranks, against the interpreter's ranks.

#include "graph/random_graphs.hpp"
#include "graph/run_graph.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>

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
