// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The laws hold through decorators, one on top of the other.

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/fault_injector.hpp>
#include <tutti/comm/traced.hpp>
#include <tutti/testing/laws.hpp>

#include <vector>

using namespace tutti;

TEST_CASE("all laws hold on Threads through a fault injector without faults, and through a tracer") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
    std::vector<std::size_t> events(static_cast<std::size_t>(ranks));
    std::vector<std::int64_t> operations(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& plain) {
      auto const r = static_cast<std::size_t>(plain.rank());
      auto injected = decorated<FaultInjector>(plain, FaultPlan{});
      auto comm = decorated<Traced>(injected);
      laws::conform(comm, reports[r]);
      events[r] = comm.backend().trace()->events().size();
      operations[r] = comm.backend().inner().operations();
      if (!comm.backend().inner().injected().empty()) throw Error(ErrorKind::internal, "test", "a fault of no plan");
    });
    for (std::size_t r = 0; r < reports.size(); ++r) {
      INFO("rank " << r << " of " << ranks << ": " << reports[r].text);
      CHECK(reports[r].checks > 1000);
      CHECK(reports[r].failures == 0);
      CHECK(events[r] > 1000);  // comparisons have no number: not fewer than operations
      CHECK(static_cast<std::int64_t>(events[r]) >= operations[r]);
    }
  }
}
