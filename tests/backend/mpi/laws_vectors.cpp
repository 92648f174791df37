// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Collectives with a block size for each rank.

#include "backend/mpi/harness.hpp"

#include <tutti/testing/laws/vectors.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Mpi moves blocks of different sizes", "", bool, std::uint16_t, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_movement<TestType>(comm, report); });
}

TEMPLATE_TEST_CASE("Mpi exchanges blocks of different sizes", "", std::byte, float) {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_exchange<TestType>(comm, report); });
}

TEST_CASE("Mpi reduces to blocks of different sizes") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_reductions(comm, report); });
}

TEST_CASE("Mpi keeps many collectives with inferred counts in flight") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_in_flight(comm, report); });
}

TEST_CASE("Mpi refuses counts that do not fit") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_refusals(comm, report); });
}

TEST_CASE("Mpi tells ranks whose rows have different shapes") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ragged_disagreement(comm, report); });
}
