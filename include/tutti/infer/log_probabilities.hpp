// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How likely a model took the tokens of an answer to be.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/candidates.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Natural logarithms of the model's own probabilities: of its logits, before temperature, penalties, biases, cuts and
/// grammar.
struct TokenLogProbability {
  std::int32_t token = -1;
  double value = 0;
  std::vector<std::pair<std::int32_t, double>> top;  ///< the likeliest tokens in order; of equals the lower id
};

/// log softmax(logits) of `token`, and of the `top` likeliest. Sums in double; the same on every machine but for exp.
/// Errors    out_of_range: no such token, or more of the likeliest than there are logits
inline TokenLogProbability log_probability_of(std::span<float const> logits, std::int32_t token, std::int64_t top = 0) {
  auto const size = static_cast<std::int64_t>(logits.size());
  if (token < 0 || token >= size || top < 0 || top > size)
    throw Error(ErrorKind::out_of_range, "log_probability_of",
                concat("token ", token, " and the ", top, " likeliest of ", size, " logits are asked for"));
  double const most = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (float const logit : logits) sum += std::exp(double{logit} - most);
  double const all = most + std::log(sum);
  auto const value = [&](std::int32_t id) { return double{logits[static_cast<std::size_t>(id)]} - all; };
  TokenLogProbability result{token, value(token), {}};
  if (top == 0) return result;
  std::vector<Candidate> list;
  for (float const logit : logits) list.push_back({static_cast<std::int32_t>(list.size()), logit});
  std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(top), list.end(), MoreLikely{});
  for (Candidate const& one : std::span(list).first(static_cast<std::size_t>(top)))
    result.top.emplace_back(one.id, value(one.id));
  return result;
}

}  // namespace tutti::infer
