// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Messages, probes and groups.
// Covers: <tutti/testing/laws/dropped.hpp>
// Covers: <tutti/comm/dropped.hpp>

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/dropped.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads sends and receives", "", std::byte, bool, std::int16_t, float) {
  on_ranks([](auto& comm, laws::Report& report) { laws::messages<TestType>(comm, report); });
}

TEST_CASE("Threads matches messages by source, tag and order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::matching(comm, report); });
}

TEST_CASE("Threads leaves a buffer alone whose receive was dropped") {
  on_ranks([](auto& comm, laws::Report& report) { laws::dropped_receives(comm, report); });
}

TEST_CASE("Threads barriers order messages") {
  on_ranks([](auto& comm, laws::Report& report) { laws::barriers(comm, report); });
}

TEST_CASE("Threads splits into groups") {
  on_ranks([](auto& comm, laws::Report& report) { laws::groups(comm, report); });
}
