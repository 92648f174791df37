// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/infer/penalties.hpp>

#include <random>

using namespace tutti::infer;

namespace {

using Tokens = std::vector<std::int32_t>;

Candidates of(std::vector<float> const& logits) {
  Candidates candidates;
  candidates.assign(logits);
  return candidates;
}

/// DRY by its definition: for every token, the longest run at the end of `latest` that stood before that token.
std::vector<double> dry_penalties(Dry const& dry, Tokens const& latest, std::size_t limit, std::size_t vocabulary) {
  std::vector<double> result(vocabulary, 0);
  for (std::size_t token = 0; token < vocabulary; ++token) {
    std::size_t longest = 0;
    for (std::size_t at = 1; at < latest.size(); ++at) {
      if (latest[at] != static_cast<std::int32_t>(token)) continue;
      std::size_t length = 0;
      while (length < at && length < limit && latest[at - 1 - length] == latest[latest.size() - 1 - length]) ++length;
      longest = std::max(longest, length);
    }
    if (longest >= static_cast<std::size_t>(dry.allowed))
      result[token] = dry.multiplier * std::pow(dry.base, double(longest) - double(dry.allowed));
  }
  return result;
}

}  // namespace

TEST_CASE("penalties divide or multiply, and subtract for each time and once") {
  Candidates candidates = of({2, -2, 1, 3});
  Penalties{.repeat = 2, .frequency = 0.25, .presence = 0.5}(candidates, Tokens{0, 1, 0, 0, 9});
  CHECK(candidates.find(0)->logit == 2 / 2.0f - 3 * 0.25f - 0.5f);
  CHECK(candidates.find(1)->logit == -2 * 2.0f - 0.25f - 0.5f);
  CHECK(candidates.find(2)->logit == 1);
  CHECK(candidates.find(3)->logit == 3);
  Candidates same = of({2, -2});
  Penalties{}(same, Tokens{0, 1});
  CHECK(same.find(0)->logit == 2);
}

TEST_CASE("DRY is its definition on random texts of few tokens") {
  std::mt19937 engine(3);
  for (std::int32_t const vocabulary : {1, 2, 3, 7})
    for (std::size_t const length : {0u, 1u, 2u, 5u, 30u, 200u})
      for (std::int64_t const allowed : {1, 2, 4}) {
        Tokens latest(length);
        for (std::int32_t& token : latest) token = static_cast<std::int32_t>(engine() % unsigned(vocabulary));
        Dry const dry{.multiplier = 0.5, .base = 1.1, .allowed = allowed};
        Candidates candidates = of(std::vector<float>(static_cast<std::size_t>(vocabulary), 0.0f));
        dry(candidates, latest);
        auto const expected = dry_penalties(dry, latest, latest.size(), static_cast<std::size_t>(vocabulary));
        INFO(vocabulary << " tokens, " << length << " long, " << allowed << " allowed");
        for (std::int32_t id = 0; id < vocabulary; ++id)
          CHECK(candidates.find(id)->logit == Approx(-expected[static_cast<std::size_t>(id)]).epsilon(1e-5));
      }
}

TEST_CASE("a run for DRY ends at a breaker, and a breaker alone is never penalised") {
  Tokens const latest{1, 2, 3, 4, 1, 2, 3};
  auto const logit = [&](Dry const& dry, std::int32_t id) {
    Candidates candidates = of({0, 0, 0, 0, 0});
    dry(candidates, latest);
    return candidates.find(id)->logit;
  };
  Dry dry{.multiplier = 1, .base = 2, .allowed = 2};
  CHECK(logit(dry, 4) == -2);  // 1 2 3 stood before 4: one more than is allowed
  dry.breakers.add(1, {});
  CHECK(logit(dry, 4) == -1);  // 2 3 is left of it
  dry.breakers.add(2, {3});
  CHECK(logit(dry, 4) == 0);
  Dry exempt{.multiplier = 1, .base = 2, .allowed = 2};
  exempt.breakers.add(4, {});
  CHECK(logit(exempt, 4) == 0);
}

TEST_CASE("breakers are found inside tokens, at their end, and over several") {
  std::vector<std::string> const pieces{"a", "\n", "b\nc", "x\"", "\"", "e", "end", "d", ""};
  auto const encode = [&](std::string_view text) {
    Tokens ids;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t best = 0, length = 0;
      for (std::size_t id = 0; id < pieces.size(); ++id)
        if (pieces[id].size() > length && text.substr(at).starts_with(pieces[id]))
          best = id, length = pieces[id].size();
      ids.push_back(static_cast<std::int32_t>(best));
      at += std::max<std::size_t>(length, 1);
    }
    return ids;
  };
  std::vector<std::string> const breakers{"\n", "ade"};
  SequenceBreakers const found(breakers, pieces, encode);
  CHECK(found.single(1));
  CHECK(found.single(2));
  CHECK(!found.single(0));
  CHECK(!found.single(8));
  CHECK(found.free_tail(Tokens{5, 1, 6, 6}) == 2);
  CHECK(found.free_tail(Tokens{5, 6}) == 2);
  CHECK(found.free_tail(Tokens{0, 7, 5, 4, 4}) == 2);  // a, d, e spell the other breaker
  CHECK(found.free_tail(Tokens{0, 7, 4}) == 3);
}

TEST_CASE("DRY takes long repetitive texts in linear time and without overflow") {
  Tokens const latest(200'000, 1);
  Candidates candidates = of({0, 0});
  Dry{.multiplier = 1, .base = 1.75, .allowed = 2}(candidates, latest);
  CHECK(candidates.find(1)->logit < -1e37f);
  CHECK(std::isfinite(candidates.find(1)->logit));
  CHECK(candidates.find(0)->logit == 0);
}
