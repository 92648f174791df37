// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Structs, complex numbers, values with a location, 16-bit floats.

#include "backend/mpi/harness.hpp"

#include <tutti/testing/laws/elements.hpp>

using namespace tutti;
using test::on_ranks;

TEST_CASE("Mpi moves structs without their padding") {
  on_ranks([](auto& comm, laws::Report& report) { laws::structs(comm, report); });
}

TEST_CASE("Mpi reduces structs with callables in rank order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::struct_reductions(comm, report); });
}

TEMPLATE_TEST_CASE("Mpi moves and reduces complex numbers", "", float, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::complex_numbers<TestType>(comm, report); });
}

TEMPLATE_TEST_CASE("Mpi finds extremes with their index", "", bfloat16, float, std::int8_t, std::uint64_t) {
  on_ranks([](auto& comm, laws::Report& report) { laws::locations<TestType>(comm, report); });
}

TEST_CASE("Mpi accumulates 16-bit floats in float in every reduction") {
  on_ranks([](auto& comm, laws::Report& report) { laws::narrow_reductions(comm, report); });
}
