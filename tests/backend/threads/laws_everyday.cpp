// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Single values, plain structs, containers that are moved in, absent partners, ranks without a color, neighbours,
/// windows.

// Covers: <tutti/comm/window.hpp>
// Covers: <tutti/comm/window_request.hpp>
// Covers: <tutti/testing/laws/everyday.hpp>

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/everyday.hpp>

using namespace tutti;
using test::on_ranks;

TEST_CASE("Threads moves single values and structs without a description") {
  on_ranks([](auto& comm, laws::Report& report) { laws::plain_values(comm, report); });
}

TEST_CASE("Threads gives containers back that were moved in") {
  on_ranks([](auto& comm, laws::Report& report) { laws::moved_containers(comm, report); });
}

TEST_CASE("Threads passes over partners that do not exist") {
  on_ranks([](auto& comm, laws::Report& report) { laws::absent_partners(comm, report); });
}

TEST_CASE("Threads splits ranks of which some join nothing") {
  on_ranks([](auto& comm, laws::Report& report) { laws::split_without_color(comm, report); });
}

TEST_CASE("Threads finds neighbours in a mesh and exchanges blocks with them") {
  on_ranks([](auto& comm, laws::Report& report) { laws::neighbours(comm, report); });
}

TEST_CASE("Threads lets ranks read and write what others offer") {
  on_ranks([](auto& comm, laws::Report& report) { laws::windows(comm, report); });
}

TEMPLATE_TEST_CASE("Threads compares integers over their whole range", "", std::int8_t, std::uint8_t, std::int16_t,
                   std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::whole_range<TestType>(comm, report); });
}
