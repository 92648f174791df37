// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/rank_reports.hpp> <tutti/train/process_use.hpp>
#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/train/rank_reports.hpp>

#include <algorithm>
#include <thread>

using namespace tutti;
using namespace tutti::train;

TEST_CASE("every rank has a row, and a process that several ranks share counts once") {
  for (int ranks : {1, 3}) {
    Registry registry;
    Registry::Json times;
    auto const heard = registry.subscribe([&](RegistryEvent const& event) {
      if (event.kind == RegistryEvent::Kind::record) times = event.json;
    });
    bool due = false, due_again = true;
    threads::run(ranks, [&](auto& communicator) {
      auto const port = parallel::data_parallel(communicator).port;
      RankReports reports;
      Registry own;
      if (port->rank() == 0) due = reports.due();
      reports.exchange(*port, 7, 20.0 + port->rank(), 1.5 + port->rank(), "cpu", port->rank() == 0 ? registry : own);
      if (port->rank() == 0) due_again = reports.due();
    });
    CHECK(due);
    CHECK(!due_again);
    auto const workers = registry.get("workers");
    REQUIRE(workers.size() == static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      auto const& row = workers.at(static_cast<std::size_t>(rank));
      CHECK(row.at("name") == "rank " + std::to_string(rank));
      CHECK(row.at("waits_ms") == 1.5 + rank);
      CHECK(row.at("process") == ::getpid());
      CHECK(!row.at("link").get<std::string>().empty());
      CHECK(row.at("memory").get<double>() > 1e6);
    }
    if (ranks == 1) CHECK(times.is_null());
    else
      CHECK(times ==
            Registry::Json{
                {"type", "ranks"}, {"step", 7}, {"busy_ms", {20.0, 21.0, 22.0}}, {"waits_ms", {1.5, 2.5, 3.5}}});
    CHECK(registry.get("machine").at("memory").get<double>() < 2 * workers.at(0).at("memory").get<double>());
  }
}

TEST_CASE("a busy process has been seen to be busy") {
  ProcessUse use;
  CHECK(use.processors() == 0);  // since no call before
  auto const end = exec::now_ns() + 100'000'000;
  while (exec::now_ns() < end) {
  }
  double const busy = use.processors();
  CHECK(busy > 0.05);
  CHECK(busy < 64);
}

TEST_CASE("the greatest of the ranks' numbers is the slowest rank's, and gives its time to the microsecond") {
  SlowestRank const times[]{{12.3456, 0}, {99.0011, 1}, {98.9999, 1048575}, {-1, 3}, {0, 2}};
  double most = 0;
  for (SlowestRank const& one : times) most = std::max(most, one.packed());
  CHECK(SlowestRank::of(most).ms == Approx(99.001).epsilon(1e-9));
  CHECK(SlowestRank::of(most).rank == 1);
  CHECK(SlowestRank::of(times[2].packed()).rank == 1048575);
  CHECK(SlowestRank::of(times[3].packed()).ms == 0);
  CHECK(SlowestRank::of(SlowestRank{7.2e6, 5}.packed()).rank == 5);
}
