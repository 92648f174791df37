// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Single values, plain structs, containers that are moved in, absent partners, ranks without a color, neighbours,
/// windows, and integers over their whole range.
// Covers: <tutti/backend/mpi/operations.hpp>

#include "backend/mpi/harness.hpp"

#include <tutti/testing/laws/everyday.hpp>

using namespace tutti;
using test::on_ranks;

TEST_CASE("Mpi moves single values and structs without a description") {
  on_ranks([](auto& comm, laws::Report& report) { laws::plain_values(comm, report); });
}

TEST_CASE("Mpi gives containers back that were moved in") {
  on_ranks([](auto& comm, laws::Report& report) { laws::moved_containers(comm, report); });
}

TEST_CASE("Mpi passes over partners that do not exist") {
  on_ranks([](auto& comm, laws::Report& report) { laws::absent_partners(comm, report); });
}

TEST_CASE("Mpi splits ranks of which some join nothing") {
  on_ranks([](auto& comm, laws::Report& report) { laws::split_without_color(comm, report); });
}

TEST_CASE("Mpi finds neighbours in a mesh and exchanges blocks with them") {
  on_ranks([](auto& comm, laws::Report& report) { laws::neighbours(comm, report); });
}

TEST_CASE("Mpi lets ranks read and write what others offer") {
  on_ranks([](auto& comm, laws::Report& report) { laws::windows(comm, report); });
}

TEMPLATE_TEST_CASE("Mpi compares integers over their whole range", "", std::int8_t, std::uint8_t, std::int16_t,
                   std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::whole_range<TestType>(comm, report); });
}
