// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions of integers, bool and char.

#include "backend/mpi/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Mpi reduces integers exactly", "", bool, char, std::int8_t, std::uint8_t, std::int16_t,
                   std::uint16_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::reductions<TestType>(comm, report); });
}
