// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What makes tokens less likely because of those that came before: penalties of repetition, frequency and presence,
/// and DRY, which looks for repeated runs.

#include <tutti/infer/candidates.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Of tokens seen `count` times among the latest: a positive logit is divided by `repeat` and another multiplied, and
/// `frequency` * count + `presence` is subtracted.
/// Source: Keskar and others, "CTRL", 2019; the definitions of OpenAI's API.
struct Penalties {
  double repeat = 1, frequency = 0, presence = 0;

  bool none() const noexcept { return repeat == 1 && frequency == 0 && presence == 0; }

  void operator()(Candidates& candidates, std::span<std::int32_t const> latest) const {
    if (none()) return;
    std::vector<std::int32_t> seen(latest.begin(), latest.end());
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size();) {
      std::size_t end = i;
      while (end < seen.size() && seen[end] == seen[i]) ++end;
      if (Candidate* const candidate = candidates.find(seen[i])) {
        double logit = candidate->logit;
        logit = logit > 0 ? logit / repeat : logit * repeat;
        candidate->logit = static_cast<float>(logit - frequency * static_cast<double>(end - i) - presence);
      }
      i = end;
    }
  }
};

/// Where a repeated run ends for DRY: sequences of tokens that spell a breaker, by their first token.
class SequenceBreakers {
 public:
  SequenceBreakers() = default;
  /// `pieces[id]` is the text of a token, empty for one that is no text; `encode` gives the tokens of a text. A token
  /// that holds a breaker is one alone; one that ends with the beginning of a breaker is one with the tokens of the
  /// rest behind it.
  template <class Encode>
  SequenceBreakers(std::span<std::string const> breakers, std::span<std::string const> pieces, Encode&& encode) {
    constexpr std::size_t longest_breaker = 40, longest_tail = 20;
    for (std::string const& whole : breakers) {
      std::string_view const breaker = std::string_view(whole).substr(0, longest_breaker);
      if (breaker.empty()) continue;
      std::vector<std::vector<std::int32_t>> tails(breaker.size());  // by what the first token has of the breaker
      for (std::size_t id = 0; id < pieces.size(); ++id) {
        std::string_view const piece = pieces[id];
        if (piece.find(breaker) != piece.npos) {
          add(static_cast<std::int32_t>(id), {});
          continue;
        }
        for (std::size_t part = std::min(piece.size(), breaker.size() - 1); part > 0; --part) {
          if (!piece.ends_with(breaker.substr(0, part))) continue;
          if (tails[part].empty()) {
            tails[part] = encode(breaker.substr(part));
            if (tails[part].size() > longest_tail) tails[part].resize(longest_tail);
          }
          add(static_cast<std::int32_t>(id), tails[part]);
        }
      }
    }
  }
  /// Adds one sequence.
  void add(std::int32_t first, std::vector<std::int32_t> rest) { sequences_[first].push_back(std::move(rest)); }

  /// Whether the token alone is a breaker.
  bool single(std::int32_t token) const {
    auto const found = sequences_.find(token);
    return found != sequences_.end() &&
           std::any_of(found->second.begin(), found->second.end(), [](auto const& rest) { return rest.empty(); });
  }
  /// How many tokens stand at the end of `tokens` behind the last breaker.
  std::size_t free_tail(std::span<std::int32_t const> tokens) const {
    std::size_t free = tokens.size();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto const found = sequences_.find(tokens[i]);
      if (found == sequences_.end()) continue;
      std::span<std::int32_t const> const behind = tokens.subspan(i + 1);
      for (auto const& rest : found->second)
        if (rest.size() <= behind.size() && std::equal(rest.begin(), rest.end(), behind.begin()))
          free = std::min(free, behind.size() - rest.size());
    }
    return free;
  }

 private:
  std::map<std::int32_t, std::vector<std::vector<std::int32_t>>> sequences_;
};

/// "Don't repeat yourself": a token that would continue a run of `allowed` or more tokens that stood before loses
/// multiplier * base^(length - allowed) of its logit. Source: p-e-w, 2024.
struct Dry {
  double multiplier = 0, base = 1.75;
  std::int64_t allowed = 2;
  SequenceBreakers breakers = {};

  /// Cost: linear in `latest`.
  void operator()(Candidates& candidates, std::span<std::int32_t const> latest) const {
    std::size_t const n = latest.size();
    if (multiplier == 0 || n < 2) return;
    std::size_t const limit = breakers.free_tail(latest);
    if (limit < static_cast<std::size_t>(std::max<std::int64_t>(allowed, 1))) return;
    // The Z function of the tokens from the last to the first: common[k] tokens before latest[n - k] are the last ones.
    std::vector<std::size_t> common(n, 0);
    auto const backwards = [&](std::size_t i) { return latest[n - 1 - i]; };
    for (std::size_t k = 1, left = 0, right = 0; k < n; ++k) {
      if (k < right) common[k] = std::min(right - k, common[k - left]);
      while (k + common[k] < n && backwards(common[k]) == backwards(k + common[k])) ++common[k];
      if (k + common[k] > right) left = k, right = k + common[k];
    }
    std::map<std::int32_t, std::size_t> runs;  // the longest run that a token would continue
    for (std::size_t k = 1; k < n; ++k)
      if (std::size_t const length = std::min(common[k], limit); length >= static_cast<std::size_t>(allowed))
        runs[latest[n - k]] = std::max(runs[latest[n - k]], length);
    double const most = base > 1 ? 88.7 / std::log(base) : 0;  // beyond which a float overflows
    for (auto const& [token, length] : runs) {
      Candidate* const candidate = breakers.single(token) ? nullptr : candidates.find(token);
      if (candidate == nullptr) continue;
      double exponent = static_cast<double>(length) - static_cast<double>(allowed);
      if (most > 0) exponent = std::min(exponent, most);
      candidate->logit = static_cast<float>(candidate->logit - multiplier * std::pow(base, exponent));
    }
  }
};

}  // namespace tutti::infer
