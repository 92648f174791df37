// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Forms of calls: views, callables, requests, ports, refusals.

#include "backend/mpi/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEST_CASE("Mpi takes views, spans, vectors and numbers") {
  on_ranks([](auto& comm, laws::Report& report) { laws::forms(comm, report); });
}

TEST_CASE("Mpi reduces with callables in rank order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::callables(comm, report); });
}

TEST_CASE("Mpi keeps many operations in flight") {
  on_ranks([](auto& comm, laws::Report& report) { laws::in_flight(comm, report); });
}

TEST_CASE("Mpi moves on what is in flight on other communicators of the rank") {
  on_ranks([](auto& comm, laws::Report& report) { laws::relatives(comm, report); });
}

TEST_CASE("Mpi works through a port") {
  on_ranks([](auto& comm, laws::Report& report) { laws::ports(comm, report); });
}

TEST_CASE("Mpi refuses what one rank can see to be wrong") {
  on_ranks([](auto& comm, laws::Report& report) { laws::refusals(comm, report); });
}
