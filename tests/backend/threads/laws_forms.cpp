// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Forms of calls: views, callables, requests, ports, refusals.

#include "backend/threads/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEST_CASE("Threads takes views, spans, vectors and numbers") {
  on_ranks([](auto& comm, laws::Report& report) { laws::forms(comm, report); });
}

TEST_CASE("Threads reduces with callables in rank order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::callables(comm, report); });
}

TEST_CASE("Threads keeps many operations in flight") {
  on_ranks([](auto& comm, laws::Report& report) { laws::in_flight(comm, report); });
}

TEST_CASE("Threads moves on what is in flight on other communicators of the rank") {
  on_ranks([](auto& comm, laws::Report& report) { laws::relatives(comm, report); });
}

TEST_CASE("Threads works through a port") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ports(comm, report); });
}

TEST_CASE("Threads refuses what one rank can see to be wrong") {
  on_ranks([](auto& comm, laws::Report& report) { laws::refusals(comm, report); });
}
