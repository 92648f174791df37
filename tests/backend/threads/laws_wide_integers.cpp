// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions of 32- and 64-bit integers.

#include "backend/threads/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads reduces wide integers exactly", "", std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::reductions<TestType>(comm, report); });
}
