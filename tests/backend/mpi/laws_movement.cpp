// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Movement of every element type.

#include "backend/mpi/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Mpi moves elements unchanged", "", bool, char, std::byte, std::int8_t, std::uint16_t, std::int32_t,
                   std::uint64_t, bfloat16, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::movement<TestType>(comm, report); });
}
