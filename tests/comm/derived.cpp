// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The laws on a backend that provides no collective at all: everything is derived from messages, or exchanged with the
/// comparison where contributions are small and calls are compared.
// Covers: <tutti/comm/buffer_parts.hpp>
// Covers: <tutti/comm/call_buffers.hpp>
// Covers: <tutti/comm/collective_task.hpp>
// Covers: <tutti/comm/collectives.hpp>
// Covers: <tutti/comm/communicator.hpp>
// Covers: <tutti/comm/communicator_options.hpp>
// Covers: <tutti/comm/communicator_port.hpp>
// Covers: <tutti/comm/core.hpp>
// Covers: <tutti/comm/endpoint.hpp>
// Covers: <tutti/comm/heap.hpp>
// Covers: <tutti/comm/inbox.hpp>
// Covers: <tutti/comm/inferred.hpp>
// Covers: <tutti/comm/launch.hpp>
// Covers: <tutti/comm/mesh.hpp>
// Covers: <tutti/comm/message.hpp>
// Covers: <tutti/comm/message_group.hpp>
// Covers: <tutti/comm/patient_wait.hpp>
// Covers: <tutti/comm/plan.hpp>
// Covers: <tutti/comm/plans.hpp>
// Covers: <tutti/comm/point_to_point.hpp>
// Covers: <tutti/comm/port.hpp>
// Covers: <tutti/comm/port_collective.hpp>
// Covers: <tutti/comm/operand_checks.hpp>
// Covers: <tutti/comm/ragged.hpp>
// Covers: <tutti/comm/start_queue.hpp>
// Covers: <tutti/comm/transfer.hpp> <tutti/comm/transfer_job.hpp>
// Covers: <tutti/comm/vector_collectives.hpp>
// Covers: <tutti/comm/collective_facts.hpp> <tutti/comm/collective_text.hpp>

#include "comm/messages_only.hpp"
#include "support/catch.hpp"

#include <tutti/comm/statistics.hpp>
#include <tutti/testing/laws.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <source_location>
#include <string>
#include <vector>

using namespace tutti;

namespace {

template <class F>
void on_ranks(F&& law) {
  for (comm::CheckLevel const level : {comm::CheckLevel::cheap, comm::CheckLevel::off})
    for (int ranks = 1; ranks <= 4; ++ranks) {
      std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
      test::run_messages_only(
          ranks, [&](auto& comm) { law(comm, reports[static_cast<std::size_t>(comm.rank())]); }, level);
      for (auto const& report : reports) {
        INFO(ranks << " ranks, " << (level == comm::CheckLevel::off ? "not compared: " : "compared: ") << report.text);
        CHECK(report.checks > 0);
        CHECK(report.failures == 0);
      }
    }
}

}  // namespace

TEST_CASE("a backend that can only pass messages moves elements unchanged") {
  on_ranks([](auto& comm, laws::Report& report) { laws::movement<std::int32_t>(comm, report); });
}

TEST_CASE("a backend that can only pass messages reduces") {
  on_ranks([](auto& comm, laws::Report& report) {
    laws::reduction<float>(comm, report, sum);
    laws::reduction<bfloat16>(comm, report, avg);
  });
}

TEST_CASE("a backend that can only pass messages scans, and moves blocks of different sizes") {
  on_ranks([](auto& comm, laws::Report& report) {
    laws::scan<float>(comm, report, sum);
    laws::scan_forms(comm, report);
    laws::ragged_movement<std::int32_t>(comm, report);
    laws::ragged_exchange<std::int32_t>(comm, report);
    laws::ragged_in_flight(comm, report);
  });
}

TEST_CASE("a backend that can only pass messages has plans, groups of messages, probes and meshes") {
  on_ranks([](auto& comm, laws::Report& report) {
    laws::plans(comm, report);
    laws::message_groups(comm, report);
    laws::probes(comm, report);
    laws::meshes(comm, report);
  });
}

TEST_CASE("a backend that can only pass messages keeps many operations in flight, splits, and has a port") {
  on_ranks([](auto& comm, laws::Report& report) {
    laws::callables(comm, report);
    laws::in_flight(comm, report);
    laws::groups(comm, report);
    laws::ports(comm, report);
    comm.barrier();
  });
}

TEST_CASE("what travels with the comparison gives the bits of shared memory, on any number of ranks") {
  for (int const ranks : {2, 3, 5, 6, 7, 13}) {
    using Results = std::vector<std::vector<float>>;
    std::vector<Results> shared(static_cast<std::size_t>(ranks)), exchanged(static_cast<std::size_t>(ranks));
    auto const results = [](auto& comm) {
      auto const n = static_cast<std::size_t>(comm.size());
      std::mt19937 random(static_cast<unsigned>(comm.rank() + 1));
      std::vector<float> x(n), y(n), one(1), rows(3 * n), all(n * n);
      for (float& element : x) element = static_cast<float>(random()) * 1e-5f;
      for (float& element : rows) element = static_cast<float>(random()) * 1e-5f;
      Results made;
      auto const note = [&](std::vector<float> const& result) { made.push_back(result); };
      int const last = comm.size() - 1;
      comm.all_reduce(x, y, sum);
      note(y);
      comm.all_reduce(x, y, avg);
      note(y);
      comm.scan(x, y, sum);
      note(y);
      comm.exscan(x, y, sum);
      note(y);
      comm.reduce(x, y, sum, last);
      note(y);
      comm.reduce_scatter(x, one, sum);
      note(one);
      comm.all_gather(x, all);
      note(all);
      comm.gather(one, y, 1);
      note(y);
      comm.scatter(x, one, last);
      note(one);
      comm.all_to_all(x, y);
      note(y);
      comm.all_to_all(x, x);
      note(x);
      Tensor<float, Cpu> contributions(Shape{3, comm.size()});
      std::copy(rows.begin(), rows.end(), contributions.data());
      comm.all_reduce_contributions(contributions, y, sum);
      note(y);
      comm.broadcast(y, last);
      note(y);
      return made;
    };
    threads::run(ranks, [&](auto& comm) { shared[static_cast<std::size_t>(comm.rank())] = results(comm); });
    test::run_messages_only(ranks, [&](auto& comm) {
      comm.start_statistics();
      exchanged[static_cast<std::size_t>(comm.rank())] = results(comm);
      Statistics const statistics = comm.statistics();
      for (OperationStatistics const& one : statistics.operations)
        if (one.by(comm::Algorithm::messages).operations != 0 || one.by(comm::Algorithm::exchange).operations == 0)
          exchanged[static_cast<std::size_t>(comm.rank())].clear();
    });
    for (int r = 0; r < ranks; ++r) {
      CAPTURE(ranks, r);
      auto const& expected = shared[static_cast<std::size_t>(r)];
      auto const& found = exchanged[static_cast<std::size_t>(r)];
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        CHECK(std::memcmp(found[i].data(), expected[i].data(), found[i].size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("a message of a derived collective is not taken for a comparison of an other call in flight") {
  std::vector<std::string> errors(2);
  std::vector<float> second(2);
  test::run_messages_only(2, [&](auto& comm) {
    std::vector<float> x(2, 100.0f), y(2, 100.0f);
    auto a = comm.all_reduce_async(x, sum), b = comm.all_reduce_async(y, sum);  // what was kept of them is right
    a.wait();
    b.wait();
    std::vector<float> z(2, 7.0f);
    auto const r = static_cast<std::size_t>(comm.rank());
    try {
      if (comm.rank() == 0) {
        auto p = comm.all_reduce_async(x, sum);
        auto q = comm.all_reduce_async(z, sum);
        q.wait();
        p.wait();
      } else {
        std::vector<float> from, to;
        comm.all_to_all_v_async(from, to, {0, 0}, {0, 0}).wait();
      }
    } catch (Error const& error) {
      errors[r] = error.what();
    }
    second[r] = z[0];
  });
  for (auto const& error : errors) {
    INFO(error);
    CHECK(error.find("ranks disagree: rank 0 calls all_reduce(sum, float32, count 2)") != std::string::npos);
  }
  CHECK(second[0] == 7.0f);
}

TEST_CASE("the port of a communicator is usable after the communicator object is gone") {
  threads::run(2, [](auto& comm) {
    auto const port = comm::port(comm);
    { auto const moved = std::move(comm); }
    float x = 1.0f;
    port->wait(port->start_all_reduce(&x, 1, DType::float32, comm::PortOp::sum, std::source_location::current()));
    if (x != 2.0f) throw Error(ErrorKind::internal, "test", "wrong sum");
  });
}

TEST_CASE("a port sends messages to a neighbour while collectives run, and says what does not fit") {
  std::vector<int> right(3, 0);
  threads::run(3, [&](auto& comm) {
    auto const here = std::source_location::current();
    auto const port = comm::port(comm);
    int const rank = port->rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
    std::vector<float> out(1000, static_cast<float>(rank)), in(1000);
    float one = 1;
    auto const received = port->start_receive(in.data(), 4000, before, 7, here);
    auto const sum_of_ones = port->start_all_reduce(&one, 1, DType::float32, comm::PortOp::sum, here);
    auto const sent = port->start_send(out.data(), 4000, next, 7, here);
    port->progress();
    port->wait(sum_of_ones), port->wait(received), port->wait(sent);
    bool good = one == 3 && in[999] == static_cast<float>(before);
    try {
      port->start_send(out.data(), 4, 3, 7, here);
      good = false;
    } catch (Error const& error) {
      good = good && std::string(error.what()).find("rank 3 does not exist. Ranks are 0 to 2") != std::string::npos;
    }
    right[static_cast<std::size_t>(rank)] = good ? 1 : 0;
  });
  CHECK(right == std::vector<int>{1, 1, 1});
}
