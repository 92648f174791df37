// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The laws notice what is wrong. That they hold for the library's backends is tested beside those.
// Covers: <tutti/testing/laws.hpp>
// Covers: <tutti/testing/laws/contributions.hpp>
// Covers: <tutti/testing/laws/elements.hpp>
// Covers: <tutti/testing/laws/forms.hpp>
// Covers: <tutti/testing/laws/groups.hpp>
// Covers: <tutti/testing/laws/messages.hpp>
// Covers: <tutti/testing/laws/movement.hpp>
// Covers: <tutti/testing/laws/plans.hpp>
// Covers: <tutti/testing/laws/ports.hpp>
// Covers: <tutti/testing/laws/reductions.hpp>
// Covers: <tutti/testing/laws/refusals.hpp>
// Covers: <tutti/testing/laws/report.hpp>
// Covers: <tutti/testing/laws/scans.hpp>
// Covers: <tutti/testing/laws/vectors.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/testing/laws.hpp>

using namespace tutti;

TEST_CASE("a report counts checks and failures, and tells the first five") {
  laws::Report report;
  for (int i = 0; i < 7; ++i) report.expect(i == 0, "check " + std::to_string(i));
  CHECK(report.checks == 7);
  CHECK(report.failures == 6);
  CHECK(report.text == "check 1\ncheck 2\ncheck 3\ncheck 4\ncheck 5");
}

TEST_CASE("elements are compared bit for bit, all of them, and their number too") {
  auto const x = laws::filled<float>(3, 0);
  auto const found = [&](std::int64_t size, auto&& of) {
    laws::Report report;
    laws::expect_elements<float>(report, x, size, "x", of);
    CHECK(report.checks == 1);
    return report.text;
  };
  CHECK(found(3, [](std::int64_t i) { return laws::element<float>(0, i); }).empty());
  CHECK(found(3, [](std::int64_t i) { return i == 2 ? -1.0f : laws::element<float>(0, i); }) ==
        "x: element 2 of 3 is wrong");
  CHECK(found(2, [](std::int64_t i) { return laws::element<float>(0, i); }) == "x: 3 elements instead of 2");
}

TEST_CASE("an error that does not come, of another kind or text, breaks a law") {
  laws::Report report;
  auto const fail = [] { throw Error(ErrorKind::shape, "test", "the reason"); };
  laws::expect_error(report, ErrorKind::shape, "the reason", fail);
  CHECK(report.failures == 0);
  laws::expect_error(report, ErrorKind::dtype, "the reason", fail);
  laws::expect_error(report, ErrorKind::shape, "another reason", fail);
  laws::expect_error(report, ErrorKind::shape, "the reason", [] {});
  CHECK(report.failures == 3);
}
