// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "small_gpt.hpp"
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/divide.hpp>
#include <tutti/graph/executor.hpp>
#include <tutti/graph/program.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::graph;
using test::SmallPass;
using test::SmallSizes;

namespace {

Program divided(Graph const& graph, int rank, int ranks, bool everybody, std::int64_t bucket_bytes) {
  CompileOptions options;
  options.bucket_bytes = bucket_bytes;
  options.division = {rank, ranks, everybody};
  return compile(graph, options);
}
int count(Program const& program, StepKind kind) {
  int n = 0;
  for (Step const& step : program.list.steps) n += step.kind == kind;
  return n;
}
/// Marks bytes of fields that a program's updates write.
void mark(Program const& program, std::map<std::string, std::vector<int>>& written) {
  for (Step const& step : program.list.steps) {
    if (step.kind != StepKind::adamw) continue;
    for (Ref const& ref : step.writes) {
      auto const home = program.list.home(ref.buffer);
      Entry const& field = program.list.fields[static_cast<std::size_t>(program.list[home.root].entry)];
      auto& bytes = written[field.name];
      bytes.resize(static_cast<std::size_t>(program.list[home.root].bytes));
      for (std::int64_t i = 0; i < ref.bytes(); ++i) ++bytes[static_cast<std::size_t>(home.offset + ref.offset + i)];
    }
  }
}

}  // namespace

TEST_CASE("the ranks' parts of the updates are every byte of parameters and moments once, between barriers") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  for (std::int64_t bucket_bytes : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{1} << 20})
    for (int ranks : {2, 3, 7}) {
      INFO("buckets of " << bucket_bytes << " bytes, " << ranks << " ranks");
      std::map<std::string, std::vector<int>> written, whole;
      mark(divided(graph, 0, 1, true, bucket_bytes), whole);
      for (int rank = 0; rank < ranks; ++rank) {
        Program const program = divided(graph, rank, ranks, true, bucket_bytes);
        mark(program, written);
        CHECK(count(program, StepKind::node_barrier) == 2);
        CHECK(count(program, StepKind::node_sum) == 1);
        bool updating = false;
        for (Step const& step : program.list.steps) {
          if (step.kind == StepKind::node_barrier) updating = !updating;
          if (step.kind == StepKind::adamw) CHECK(updating);
          if (step.kind != StepKind::all_reduce_start) continue;
          BufferId const root = program.list.home(step.reads[0].buffer).root;
          CHECK(program.list[root].bytes % (64 * ranks) == 0);
        }
        CHECK(!updating);
      }
      REQUIRE(written.size() == whole.size());
      for (auto const& [name, bytes] : whole) {
        INFO(name);
        bool once = written[name].size() == bytes.size();
        for (std::size_t i = 0; once && i < bytes.size(); ++i) once = bytes[i] == 1 && written[name][i] == 1;
        CHECK(once);
      }
    }
}

TEST_CASE("a bucket is scattered where all that is read of it is sections; ranks of other nodes need it whole") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  auto const scattered = [&](Program const& program) {
    int n = 0;
    for (Step const& step : program.list.steps) n += step.kind == StepKind::all_reduce_start && step.scatter;
    return n;
  };
  Program const alone = divided(graph, 0, 1, true, 3000), all = divided(graph, 1, 2, true, 3000),
                some = divided(graph, 1, 2, false, 3000);
  int const buckets = count(alone, StepKind::all_reduce_start);
  CHECK(buckets > 3);
  CHECK(scattered(alone) == 0);
  CHECK(scattered(all) >= buckets - 1);  // the loss is read whole, and may have company
  CHECK(scattered(some) == 0);
  CHECK(count(some, StepKind::node_sum) == 0);
  CHECK(count(some, StepKind::node_barrier) == 2);
  CHECK(count(alone, StepKind::node_barrier) == 0);
}

TEST_CASE("a divided program without its ranks' port is refused") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  Program const program = divided(graph, 0, 2, true, 3000);
  exec::Context context({.threads = 1});
  State state(graph);
  REQUIRE_ERROR(Executor(context, program, state), ErrorKind::invalid_argument, "Set ExecutorOptions::node");
}

TEST_CASE("ranks with parameters of their own gather what others updated, and touch of moments their sections alone") {
  SmallSizes sizes;
  Graph const graph = test::small_graph(sizes, SmallPass::whole, true);
  for (std::int64_t bucket_bytes : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{1} << 20})
    for (int ranks : {2, 3, 4}) {
      INFO("buckets of " << bucket_bytes << " bytes, " << ranks << " ranks");
      std::map<std::string, std::vector<float>> one;  // after steps of ranks that update everything
      std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
      for (bool gathers : {false, true})
        threads::run(ranks, [&](Communicator<Threads>& communicator) {
          int const rank = communicator.rank();
          auto const port = comm::port(communicator);
          CompileOptions options;
          options.bucket_bytes = bucket_bytes;
          if (gathers) options.division = {rank, ranks, true, true};
          Program const program = compile(graph, options);
          exec::Context context({.threads = 1});
          State state(graph);
          state.initialise(7);
          Executor run(context, program, state, {.port = port.get(), .node = port.get(), .poison = true});
          for (int step = 0; step < 3; ++step) {
            test::set_batch(run, sizes, static_cast<unsigned>(rank + ranks * step), step + 1);
            run.run();
          }
          communicator.barrier();
          std::string& said = wrong[static_cast<std::size_t>(rank)];
          for (Field const& field : state.fields()) {
            auto const values = field.view<float>().elements();
            if (!gathers) {
              if (rank == 0) one[field.name].assign(values.begin(), values.end());
              continue;
            }
            for (std::size_t i = 0; i < values.size(); ++i) {
              float const wanted = one.at(field.name)[i];
              bool const near = std::abs(values[i] - wanted) <= 1e-6f * std::max(1.0f, std::abs(wanted));
              if (!near && (field.parameter || values[i] != 0)) said = field.name;
            }
          }
          communicator.barrier();
        });
      for (std::string const& said : wrong) CHECK(said == "");
    }
}
