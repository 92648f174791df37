// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// scan and exscan.

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/scans.hpp>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads scans", "", bool, std::int8_t, std::uint64_t, bfloat16, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::scans<TestType>(comm, report); });
}

TEST_CASE("Threads scans numbers, columns, and with callables in rank order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::scan_forms(comm, report); });
}
