// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions whose bits do not depend on the number of ranks.

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/contributions.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads reduces contributions as one tree", "", bfloat16, float, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::contributions<TestType>(comm, report); });
}

TEST_CASE("Threads reduces contributions to the same bits in groups of any size") {
  on_ranks([](auto& comm, laws::Report& report) { laws::contributions_on_any_ranks(comm, report); });
}

TEST_CASE("Threads reduces contributions of complex numbers and structs") {
  on_ranks([](auto& comm, laws::Report& report) { laws::contribution_forms(comm, report); });
}

TEST_CASE("Threads gives sums of a fixed set of contributions the same bits on 1, 2, 3 and 4 ranks") {
  std::vector<std::uint64_t> bits;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::uint64_t found = 0;
    threads::run(ranks, [&](auto& comm) {
      auto const mine = laws::contribution_bits(comm);
      if (comm.rank() == 0) found = mine;
    });
    bits.push_back(found);
  }
  CHECK(bits == std::vector<std::uint64_t>(4, bits[0]));
}
