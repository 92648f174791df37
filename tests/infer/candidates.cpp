// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/infer/candidates.hpp>

#include <random>
#include <set>

using namespace tutti::infer;

namespace {

/// Logits with equal ones and some that are not finite among them.
std::vector<float> random_logits(std::size_t count, std::mt19937& engine) {
  std::normal_distribution<float> draw(0, 3);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = std::round(4 * draw(engine)) / 4;
  if (count > 4) logits[count / 2] = -INFINITY, logits[count / 3] = NAN;
  return logits;
}

struct Oracle {
  std::vector<Candidate> sorted;
  explicit Oracle(std::vector<float> const& logits) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) sorted.push_back({static_cast<std::int32_t>(i), logits[i]});
    std::stable_sort(sorted.begin(), sorted.end(), [](auto const& a, auto const& b) { return a.logit > b.logit; });
  }
  std::vector<double> probabilities() const {
    double mass = 0;
    for (Candidate const& c : sorted) mass += std::exp(double(c.logit));
    std::vector<double> p;
    for (Candidate const& c : sorted) p.push_back(std::exp(double(c.logit)) / mass);
    return p;
  }
  void keep(std::size_t count) { sorted.resize(std::min(sorted.size(), std::max<std::size_t>(count, 1))); }
};

std::set<std::int32_t> ids(std::span<Candidate const> list) {
  std::set<std::int32_t> result;
  for (Candidate const& c : list) result.insert(c.id);
  return result;
}

/// Runs `ours` and `theirs` on random candidates of many sizes and compares what is left.
template <class Ours, class Theirs>
void compare(Ours&& ours, Theirs&& theirs) {
  std::mt19937 engine(7);
  for (std::size_t const size : {1u, 2u, 3u, 17u, 63u, 64u, 65u, 200u, 1000u})
    for (int round = 0; round < 20; ++round) {
      std::vector<float> const logits = random_logits(size, engine);
      Candidates candidates;
      candidates.assign(logits);
      Oracle oracle(logits);
      ours(candidates);
      theirs(oracle);
      INFO(size << " logits, round " << round);
      REQUIRE(ids(candidates.list()) == ids(oracle.sorted));
      candidates.settle();
      candidates.sort(candidates.size());
      REQUIRE(std::equal(oracle.sorted.begin(), oracle.sorted.end(), candidates.list().begin()));
    }
}

}  // namespace

TEST_CASE("the most likely come first, the lower id of equals, however many are sorted") {
  for (std::size_t const count : {1u, 2u, 63u, 64u, 65u, 130u, 5000u})
    compare([&](Candidates& c) { c.keep(count); }, [&](Oracle& o) { o.keep(count); });
}

TEST_CASE("top-p keeps the smallest set of the most likely whose mass reaches p, and at least min_keep") {
  for (double const p : {0.0, 0.1, 0.5, 0.95, 0.9999, 1.0})
    for (std::size_t const least : {0u, 1u, 5u})
      compare([&](Candidates& c) { c.top_p(p, least); },
              [&](Oracle& o) {
                if (p >= 1) return;
                std::vector<double> const masses = o.probabilities();
                double sum = 0;
                std::size_t count = 0;
                while (count < masses.size() && (sum < p - 1e-12 || count < least)) sum += masses[count++];
                o.keep(count);
              });
}

TEST_CASE("min-p keeps what is at least so many times as likely as the most likely") {
  for (double const ratio : {0.0, 0.01, 0.2, 1.0})
    for (std::size_t const least : {0u, 4u})
      compare([&](Candidates& c) { c.min_p(ratio, least); },
              [&](Oracle& o) {
                if (ratio == 0) return;
                std::size_t count = 0;
                while (count < o.sorted.size() &&
                       (double(o.sorted[count].logit) >= double(o.sorted[0].logit) + std::log(ratio) || count < least))
                  ++count;
                o.keep(count);
              });
}

TEST_CASE("top-n-sigma keeps logits within n deviations of the highest") {
  for (double const n : {-1.0, 0.0, 0.51, 1.9})
    compare([&](Candidates& c) { c.top_n_sigma(n); },
            [&](Oracle& o) {
              if (n <= 0) return;
              double mean = 0, variance = 0;
              for (Candidate const& c : o.sorted) mean += c.logit / static_cast<double>(o.sorted.size());
              for (Candidate const& c : o.sorted)
                variance += (c.logit - mean) * (c.logit - mean) / static_cast<double>(o.sorted.size());
              std::size_t count = 0;
              while (count < o.sorted.size() &&
                     double(o.sorted[count].logit) >= double(o.sorted[0].logit) - n * std::sqrt(variance) + 1e-12)
                ++count;
              o.keep(count);
            });
}

TEST_CASE("typical sampling keeps surprises near the entropy") {
  // p = 0.5, 0.25, 0.125, 0.125: entropy 1.75 bits; surprises 1, 2, 3, 3 are 0.75, 0.25, 1.25, 1.25 from it.
  std::vector<float> const logits{std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  auto const left = [&](double p, std::size_t least) {
    Candidates candidates;
    candidates.assign(logits);
    candidates.typical(p, least);
    return ids(candidates.list());
  };
  CHECK(left(0.2, 0) == std::set<std::int32_t>{1});
  CHECK(left(0.3, 0) == std::set<std::int32_t>{0, 1});
  CHECK(left(0.8, 0) == std::set<std::int32_t>{0, 1, 2});
  CHECK(left(0.2, 3) == std::set<std::int32_t>{0, 1, 2});
  CHECK(left(1, 0).size() == 4);
  Candidates candidates;
  candidates.assign(logits);
  CHECK(candidates.entropy() == Approx(1.75 * std::log(2.0)));
}

TEST_CASE("exclusion drops the most likely but the least likely of those above the threshold") {
  std::vector<float> const logits{std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  auto const left = [&](double threshold, std::size_t least) {
    Candidates candidates;
    candidates.assign(logits);
    candidates.exclude_top(threshold, least);
    return ids(candidates.list());
  };
  CHECK(left(0.25, 0) == std::set<std::int32_t>{0, 2, 3});
  CHECK(left(0.15, 0) == std::set<std::int32_t>{0, 3});
  CHECK(left(0.35, 0).size() == 4);  // one alone is not excluded
  CHECK(left(0.05, 0) == std::set<std::int32_t>{0});
  CHECK(left(0.15, 3).size() == 4);
}

TEST_CASE("a token is found and dropped before and after a sort") {
  std::mt19937 engine(1);
  std::vector<float> const logits = random_logits(100, engine);
  Candidates candidates;
  candidates.assign(logits);
  for (bool const sorted : {false, true}) {
    if (sorted) candidates.keep(50);
    std::vector<Candidate> const before(candidates.list().begin(), candidates.list().end());
    for (Candidate const& c : before) {
      REQUIRE(candidates.find(c.id) != nullptr);
      REQUIRE(candidates.find(c.id)->logit == c.logit);
    }
    CHECK(candidates.find(100) == nullptr);
    CHECK(candidates.find(-1) == nullptr);
    CHECK(candidates.find(33) == nullptr);  // NaN
    std::int32_t const gone = before.front().id;
    candidates.keep_if([&](std::int32_t id) { return id != gone; });
    CHECK(candidates.find(gone) == nullptr);
    CHECK(candidates.size() == before.size() - 1);
  }
}
