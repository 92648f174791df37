// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Plans, groups of messages, probes, duplicates and meshes.

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/plans.hpp>

using namespace tutti;
using test::on_ranks;

TEST_CASE("Threads runs plans again and again") {
  on_ranks([](auto& comm, laws::Report& report) { laws::plans(comm, report); });
}

TEST_CASE("Threads refuses plans that are started twice or waited for without a start") {
  on_ranks([](auto& comm, laws::Report& report) { laws::plan_misuse(comm, report); });
}

TEST_CASE("Threads completes groups of messages together") {
  on_ranks([](auto& comm, laws::Report& report) { laws::message_groups(comm, report); });
}

TEST_CASE("Threads leaves probed messages where they are") {
  on_ranks([](auto& comm, laws::Report& report) { laws::probes(comm, report); });
}

TEST_CASE("Threads duplicates and makes meshes") {
  on_ranks([](auto& comm, laws::Report& report) { laws::meshes(comm, report); });
}
