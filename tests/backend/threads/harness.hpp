// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a law on 1, 2, 3 and 4 thread ranks; reports are combined after the join, on the main thread.

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/testing/laws.hpp>

#include <string>
#include <vector>

namespace tutti::test {

using Ranks = Threads;

template <class F>
void on_ranks(F&& law) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](auto& comm) { law(comm, reports[static_cast<std::size_t>(comm.rank())]); });
    for (int rank = 0; rank < ranks; ++rank) {
      auto const& report = reports[static_cast<std::size_t>(rank)];
      INFO("rank " << rank << " of " << ranks << ": " << report.text);
      CHECK(report.checks > 0);
      CHECK(report.failures == 0);
    }
  }
}

}  // namespace tutti::test
