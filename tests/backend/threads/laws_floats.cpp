// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions of floating-point numbers.

#include "backend/threads/harness.hpp"

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads reduces floating-point numbers", "", bfloat16, float16, float, double) {
  on_ranks([](auto& comm, laws::Report& report) { laws::reductions<TestType>(comm, report); });
}

TEST_CASE("Threads accumulates 16-bit floats in float and rounds once") {
  on_ranks([](auto& comm, laws::Report& report) { laws::narrow_sums(comm, report); });
}

TEST_CASE("Threads sums give the same bits on every rank and in every run") {
  on_ranks([](auto& comm, laws::Report& report) { laws::determinism(comm, report); });
}
