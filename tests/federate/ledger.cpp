// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/federate/ledger.hpp>
#include <tutti/testing/simulated_network.hpp>

#include <set>

using namespace tutti;
using namespace tutti::federate;

TEST_CASE("a set of ranges holds what a set of numbers holds") {
  testing::Dice dice(11);
  RangeSet ranges;
  std::set<std::int64_t> numbers;
  for (int turn = 0; turn < 5000; ++turn) {
    Range const range{dice.below(60), dice.below(7)};
    bool none = true, all = true;
    for (std::int64_t i = 0; i < range.count; ++i) {
      bool const has = numbers.contains(range.first + i);
      none = none && !has;
      all = all && has;
    }
    if (dice.happens(0.5)) {
      REQUIRE(ranges.add(range) == none);
      for (std::int64_t i = 0; none && i < range.count; ++i) numbers.insert(range.first + i);
    } else {
      REQUIRE(ranges.remove(range) == all);
      for (std::int64_t i = 0; all && i < range.count; ++i) numbers.erase(range.first + i);
    }
    REQUIRE(ranges.size() == static_cast<std::int64_t>(numbers.size()));
    std::int64_t end = -1;
    for (auto const& [first, count] : ranges.ranges()) {
      REQUIRE(first > end);  // neighbours are joined
      REQUIRE(count > 0);
      for (std::int64_t i = 0; i < count; ++i) REQUIRE(numbers.contains(first + i));
      end = first + count;
    }
  }
}

TEST_CASE("a sample goes from free to leased to committed, or back to free") {
  Ledger ledger(10);
  CHECK(ledger.free() == 10);
  CHECK(ledger.lowest_free(4) == std::vector<Range>{{0, 4}});
  ledger.lease({1, 7, 0, {{0, 4}}});
  ledger.lease({2, 8, 0, {{4, 6}}});
  CHECK(ledger.free() == 0);
  CHECK(ledger.lowest_free(1).empty());
  ledger.commit(1, 3);
  CHECK(ledger.committed() == 3);
  CHECK(ledger.lowest_free(9) == std::vector<Range>{{3, 1}});
  ledger.release(2);
  CHECK(ledger.lowest_free(9) == std::vector<Range>{{3, 7}});
  CHECK(ledger.leased() == 0);
  ledger.lease({3, 7, 1, {{3, 2}, {7, 3}}});
  CHECK(ledger.lowest_free(9) == std::vector<Range>{{5, 2}});
  ledger.lease({4, 7, 1, {{5, 2}}});
  ledger.commit(3, 5);
  ledger.commit(4, 2);
  CHECK(ledger.complete());
  CHECK(ledger.find(4) == nullptr);
}

TEST_CASE("a ledger refuses what would lose or double a sample, and stays as it was") {
  Ledger ledger(10);
  ledger.lease({1, 7, 0, {{2, 4}}});
  auto const internal = ErrorKind::internal;
  REQUIRE_ERROR(ledger.lease({1, 7, 0, {{6, 1}}}), internal, "given twice");
  REQUIRE_ERROR(ledger.lease({0, 7, 0, {{6, 1}}}), internal, "given twice");
  REQUIRE_ERROR(ledger.lease({2, 7, 0, {{0, 3}}}), internal, "[0, 3) is leased and was not free");
  REQUIRE_ERROR(ledger.lease({2, 7, 0, {{0, 2}, {1, 1}}}), internal, "was not free");
  REQUIRE_ERROR(ledger.lease({2, 7, 0, {{9, 2}}}), internal, "was not free");
  REQUIRE_ERROR(ledger.lease({2, 7, 0, {{0, 0}}}), internal, "was not free");
  REQUIRE_ERROR(ledger.lease({2, 7, 0, {}}), internal, "a lease of nothing");
  REQUIRE_ERROR(ledger.commit(1, 5), internal, "which it does not have");
  REQUIRE_ERROR(ledger.commit(1, 0), internal, "which it does not have");
  REQUIRE_ERROR(ledger.commit(2, 1), internal, "lease 2 is not outstanding");
  REQUIRE_ERROR(ledger.release(2), internal, "lease 2 is not outstanding");
  REQUIRE_ERROR(ledger.rebase(2, 1), internal, "lease 2 is not outstanding");
  CHECK(ledger.free() == 6);
  CHECK(ledger.leased() == 4);
  CHECK(ledger.committed() == 0);
}

TEST_CASE("of a worker's leases the newest is the one that it comes back with") {
  Ledger ledger(10);
  ledger.lease({5, 7, 0, {{0, 1}}});
  ledger.lease({6, 8, 0, {{1, 1}}});
  ledger.lease({7, 7, 0, {{2, 1}}});
  ledger.lease({9, 7, 0, {{3, 1}}});
  CHECK(superseded(ledger, false) == std::vector<std::uint64_t>{5, 7});
}
