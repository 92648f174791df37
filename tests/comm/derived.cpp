// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The laws on a backend that provides no collective at all: everything is derived from messages.
// Covers: <tutti/comm/collective_task.hpp>
// Covers: <tutti/comm/collectives.hpp>
// Covers: <tutti/comm/communicator.hpp>
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
// Covers: <tutti/comm/plan.hpp>
// Covers: <tutti/comm/plans.hpp>
// Covers: <tutti/comm/point_to_point.hpp>
// Covers: <tutti/comm/port.hpp>
// Covers: <tutti/comm/ragged.hpp>
// Covers: <tutti/comm/vector_collectives.hpp>

#include "comm/messages_only.hpp"
#include "support/catch.hpp"

#include <tutti/testing/laws/collectives.hpp>
#include <tutti/testing/laws/plans.hpp>
#include <tutti/testing/laws/scans.hpp>
#include <tutti/testing/laws/vectors.hpp>

#include <string>
#include <vector>

using namespace tutti;

namespace {

template <class F>
void on_ranks(F&& law) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
    test::run_messages_only(ranks, [&](auto& comm) { law(comm, reports[static_cast<std::size_t>(comm.rank())]); });
    for (auto const& report : reports) {
      INFO(ranks << " ranks: " << report.text);
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

TEST_CASE("the port of a communicator is usable after the communicator object is gone") {
  threads::run(2, [](auto& comm) {
    auto const port = comm::port(comm);
    { auto const moved = std::move(comm); }
    float x = 1.0f;
    port->wait(port->start_all_reduce(&x, 1, DType::float32, comm::PortOp::sum, std::source_location::current()));
    if (x != 2.0f) throw Error(ErrorKind::internal, "test", "wrong sum");
  });
}
