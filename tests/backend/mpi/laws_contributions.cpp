// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions whose bits do not depend on the number of ranks.

#include "backend/mpi/harness.hpp"

#include <tutti/testing/laws/contributions.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Mpi reduces contributions as one tree", "", bfloat16, float, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::contributions<TestType>(comm, report); });
}

TEST_CASE("Mpi reduces contributions to the same bits in groups of any size") {
  on_ranks([](auto& comm, laws::Report& report) { laws::contributions_on_any_ranks(comm, report); });
}

TEST_CASE("Mpi reduces contributions of complex numbers and structs") {
  on_ranks([](auto& comm, laws::Report& report) { laws::contribution_forms(comm, report); });
}
