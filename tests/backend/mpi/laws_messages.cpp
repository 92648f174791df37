// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Messages, probes and groups.

#include "backend/mpi/harness.hpp"

#include <tutti/testing/laws/dropped.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Mpi sends and receives", "", std::byte, bool, std::int16_t, float) {
  on_ranks([](auto& comm, laws::Report& report) { laws::messages<TestType>(comm, report); });
}

TEST_CASE("Mpi matches messages by source, tag and order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::matching(comm, report); });
}

TEST_CASE("Mpi passes messages at once and later in any mixture") {
  on_ranks([](auto& comm, laws::Report& report) { laws::blocking_messages(comm, report); });
}

TEST_CASE("Mpi leaves a buffer alone whose receive was dropped") {
  on_ranks([](auto& comm, laws::Report& report) { laws::dropped_receives(comm, report); });
}

TEST_CASE("Mpi barriers order messages") {
  on_ranks([](auto& comm, laws::Report& report) { laws::barriers(comm, report); });
}

TEST_CASE("Mpi splits into groups") {
  on_ranks([](auto& comm, laws::Report& report) { laws::groups(comm, report); });
}
