// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Runs a law on 1, 2, 3 and 4 ranks that are threads with a device each, as far as there are devices; emulated ones
/// are shared, and looked at afterwards.

#include "support/catch.hpp"

#include <tutti/backend/nccl.hpp>
#include <tutti/backend/threads.hpp>
#include <tutti/testing/laws.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::test {

using Ranks = NcclOn<Threads>;

/// f(communicator) on `ranks` ranks.
template <class F>
void run_on_devices(int ranks, F&& f, NcclConfig config = {}, CommunicatorOptions options = {}) {
  threads::run(
      ranks,
      [&](Communicator<Threads>& outer) {
        auto comm = decorated<NcclOn>(outer, Cuda(device_of(outer, cuda::device_count()).device), config);
        f(comm);
      },
      options);
}

#if TUTTI_TEST_EMULATED
inline int most_ranks() { return 4; }
/// Nothing is left, and NCCL was never used as it forbids.
inline void check_clean() {
  auto const counts = emulated::nccl::counts();
  INFO("misuse: " << counts.misuse);
  CHECK(counts.misuses == 0);
  CHECK(counts.communicators == 0);
  CHECK(counts.registered + counts.windows == 0);
  CHECK(counts.allocated == 0);
}
#else
/// As many as there are devices, or as TUTTI_TEST_RANKS says where the library lets ranks share one.
inline int most_ranks() {
  char const* const told = std::getenv("TUTTI_TEST_RANKS");
  int const most = told != nullptr ? std::atoi(told) : cuda::device_count();
  return most < 4 ? most : 4;
}
inline void check_clean() {}
#endif

template <class F>
void on_ranks(F&& law, NcclConfig config = {}, int most = 4) {
  for (int ranks = 1; ranks <= most_ranks() && ranks <= most; ++ranks) {
    std::vector<laws::Report> reports(static_cast<std::size_t>(ranks));
    run_on_devices(ranks, [&](auto& comm) { law(comm, reports[static_cast<std::size_t>(comm.rank())]); }, config);
    for (int rank = 0; rank < ranks; ++rank) {
      auto const& report = reports[static_cast<std::size_t>(rank)];
      INFO("rank " << rank << " of " << ranks << ": " << report.text);
      CHECK(report.checks > 0);
      CHECK(report.failures == 0);
    }
    check_clean();
  }
}

}  // namespace tutti::test
