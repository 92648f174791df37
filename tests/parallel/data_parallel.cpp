// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/communicator_port.hpp>
#include <tutti/parallel/data_parallel.hpp>

#include <mutex>
#include <string>
#include <vector>

using namespace tutti;

namespace {

void fill(graph::State& state, float value) {
  state.add("weight", DType::float32, {3, 5});
  state.add("moment", DType::float32, {7});
  for (graph::Field& field : state.fields())
    for (float& element : field.view<float>().elements()) element = value++;
}

}  // namespace

TEST_CASE("broadcast gives every rank the root's state, and equal states pass the comparison") {
  for (int ranks : {1, 2, 3, 4})
    for (int root : {0, ranks - 1}) {
      std::vector<std::uint64_t> hashes(static_cast<std::size_t>(ranks));
      std::vector<float> seen(static_cast<std::size_t>(ranks));
      threads::run(ranks, [&](Communicator<Threads>& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        graph::State state;
        fill(state, static_cast<float>(100 * communicator.rank()));
        auto const port = comm::port(communicator);
        parallel::broadcast(*port, state, root);
        parallel::require_equal(*port, state, "after the broadcast");
        hashes[rank] = parallel::hash(state);
        seen[rank] = state["weight"](0, 0);
      });
      for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
        CHECK(hashes[rank] == hashes[0]);
        CHECK(seen[rank] == static_cast<float>(100 * root));
      }
    }
}

TEST_CASE("a rank whose state differs in one bit is named on every rank") {
  std::vector<std::string> texts(3);
  threads::run(3, [&](Communicator<Threads>& communicator) {
    graph::State state;
    fill(state, 1.0f);
    if (communicator.rank() == 2) state["moment"](6) = 1e-30f;
    auto const port = comm::port(communicator);
    try {
      parallel::require_equal(*port, state, "at the checkpoint of step 7");
    } catch (Error const& error) {
      texts[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
  });
  for (std::string const& text : texts) {
    CHECK(test::contains(text, "on rank 2 at the checkpoint of step 7"));
    CHECK(!test::contains(text, "rank 1 at"));
  }
}

TEST_CASE("the hash sees names and contents") {
  graph::State a, b, c;
  fill(a, 1.0f);
  fill(b, 1.0f);
  CHECK(parallel::hash(a) == parallel::hash(b));
  b["weight"](2, 4) += 1e-6f * 15;
  CHECK(parallel::hash(a) != parallel::hash(b));
  c.add("weights", DType::float32, {3, 5});
  graph::State d;
  d.add("weight", DType::float32, {3, 5});
  CHECK(parallel::hash(c) != parallel::hash(d));
}

TEST_CASE("a communicator that was moved from is told at the line that would train on it") {
  threads::run(1, [](auto& made) {
    auto communicator = made.duplicate();
    auto const gone = std::move(communicator);
    REQUIRE_ERROR(parallel::data_parallel(communicator), ErrorKind::invalid_argument, "(data_parallel.cpp:");
  });
}

TEST_CASE("sums over ranks are everybody's") {
  std::vector<double> sums(4);
  threads::run(4, [&](Communicator<Threads>& communicator) {
    auto const data_parallel = parallel::data_parallel(communicator);
    double values[] = {1.0 + communicator.rank(), 0.5};
    parallel::all_reduce(*data_parallel.port, values, comm::PortOp::sum);
    parallel::barrier(*data_parallel.port);
    sums[static_cast<std::size_t>(communicator.rank())] = values[0] * 10 + values[1];
  });
  for (double value : sums) CHECK(value == 102.0);
}
