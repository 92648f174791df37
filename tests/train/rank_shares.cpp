// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/rank_shares.hpp> <tutti/train/setup_values.hpp> <tutti/train/batch_division.hpp>
#include <tutti/train/rank_shares.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using namespace tutti;
using train::RankShares;
using train::weighted_share;

namespace {

std::vector<std::int64_t> counts(std::int64_t total, std::vector<double> const& weights) {
  std::vector<std::int64_t> all;
  std::int64_t begin = 0;
  for (std::size_t part = 0; part < weights.size(); ++part) {
    data::Share const share = weighted_share(total, part, weights);
    REQUIRE(share.begin == begin);
    begin += share.count;
    all.push_back(share.count);
  }
  REQUIRE(begin == total);
  return all;
}

}  // namespace

TEST_CASE("Shares are as near to the weights as whole numbers are, and none is empty") {
  CHECK(counts(12, {2, 1}) == std::vector<std::int64_t>{8, 4});
  CHECK(counts(6, {5, 1}) == std::vector<std::int64_t>{5, 1});
  CHECK(counts(3, {1000, 1, 1}) == std::vector<std::int64_t>{1, 1, 1});
  CHECK(counts(10, {1000, 1, 1}) == std::vector<std::int64_t>{8, 1, 1});
  CHECK(counts(7, {0.5, 1, 0.5}) == std::vector<std::int64_t>{2, 3, 2});
  std::mt19937 random(3);
  for (int turn = 0; turn < 500; ++turn) {
    std::size_t const ranks = 1 + random() % 6;
    auto const total = static_cast<std::int64_t>(ranks + random() % 40);
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      sum += weights.emplace_back(0.1 + 0.1 * static_cast<double>(random() % 100));
    std::vector<std::int64_t> const found = counts(total, weights);
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(found[r] >= 1);
      double const ideal = static_cast<double>(total) * weights[r] / sum;
      if (ideal >= 1) CHECK(std::abs(static_cast<double>(found[r]) - ideal) < static_cast<double>(ranks));
    }
    std::vector<double> const equal(ranks, 0.7);
    for (std::size_t r = 0; r < ranks; ++r)
      CHECK(weighted_share(total, r, equal) ==
            data::share_of(total, static_cast<std::int64_t>(r), static_cast<std::int64_t>(ranks)));
  }
}

TEST_CASE("What the flag may say, and what measured speeds come to") {
  CHECK((!RankShares("even").measured() && RankShares("even").weights().empty()));
  CHECK((RankShares("auto").measured() && RankShares("auto").weights().empty()));
  CHECK(RankShares("2,1.5,1").weights() == std::vector<double>{2, 1.5, 1});
  for (std::string const wrong :
       {"", "fast", "1,", ",1", "1,,2", "0,1", "-1,2", "1e400,1", "nan,1", "1 2", "1;2", "1e9,1"}) {
    INFO(wrong);
    REQUIRE_ERROR(RankShares(wrong), ErrorKind::configuration, "--rank-shares " + wrong + " is even, auto, or");
  }
  CHECK(RankShares::of_speeds({3e11, 3.2e11}) == std::vector<double>{1, 1});
  CHECK(RankShares::of_speeds({3e11, 6e11, 1e11}) == std::vector<double>{0.5, 1, 0.17});
}
