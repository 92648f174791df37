// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How well a model foretells a text: its perplexity.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/log_probabilities.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tutti::infer {

struct Evaluation {
  std::int64_t windows = 0, tokens = 0;  ///< tokens that were foretold
  double sum = 0, squares = 0;           ///< of -log p of each, in nats

  double loss() const noexcept { return tokens > 0 ? sum / static_cast<double>(tokens) : 0; }
  double perplexity() const noexcept { return std::exp(loss()); }
  /// Standard error of the loss, of tokens that are taken for independent.
  double loss_error() const noexcept {
    if (tokens < 2) return 0;
    double const n = static_cast<double>(tokens), mean = loss();
    return std::sqrt(std::max(squares / n - mean * mean, 0.0) / (n - 1));
  }
};

struct EvaluationOptions {
  std::int64_t window = 512;            ///< tokens that the model sees at a time
  std::optional<std::int32_t> begin{};  ///< stands in the place of each window's first token
  /// Called after each window, with how many of how many are done and what is known so far.
  std::function<void(std::int64_t, std::int64_t, Evaluation const&)> progress{};
};

/// Windows follow one another without overlap; in each, tokens of the second half are foretold from all that stand
/// before them in the window, so that every one has at least half a window of context. What is left at the end of the
/// text, less than a window, is not counted. This is how llama.cpp's perplexity tool counts.
/// Uses slot 0 of the decoder.
/// Cost      a prompt of all windows' tokens, and the logits of half of them
/// Errors    invalid_argument (a window of less than four tokens), out_of_range (a window that is longer than the
///           decoder's cache, a text that is shorter than a window, an unknown token)
inline Evaluation evaluate_text(Decoder& decoder, std::span<std::int32_t const> tokens,
                                EvaluationOptions const& options = {}) {
  std::int64_t const window = options.window, size = static_cast<std::int64_t>(tokens.size());
  if (window < 4)
    throw Error(ErrorKind::invalid_argument, "evaluate_text",
                concat("a window of ", window, " tokens foretells nothing. Make it at least 4"));
  if (window > decoder.capacity())
    throw Error(ErrorKind::out_of_range, "evaluate_text",
                concat("a window of ", window, " tokens does not fit the decoder's ", decoder.capacity()));
  if (size < window)
    throw Error(ErrorKind::out_of_range, "evaluate_text",
                concat("the text has ", size, " tokens, less than a window of ", window,
                       ". Give a longer text or a smaller window"));
  constexpr std::int64_t at_once = 64;  // whose logits are in memory together
  std::int64_t const windows = size / window, first = window / 2;
  auto const classes = static_cast<std::size_t>(decoder.vocabulary());
  Evaluation result;
  std::vector<NewToken> rows;
  while (result.windows < windows) {
    auto const seen =
        tokens.subspan(static_cast<std::size_t>(result.windows * window), static_cast<std::size_t>(window));
    auto const token = [&](std::int64_t i) {
      return i == 0 && options.begin ? *options.begin : seen[static_cast<std::size_t>(i)];
    };
    // The last token foretells nothing that is counted.
    for (std::int64_t from = 0; from < window - 1;) {
      std::int64_t const to = from < first ? first : std::min(from + at_once, window - 1);
      rows.clear();
      for (std::int64_t i = from; i < to; ++i) rows.push_back({token(i), 0, static_cast<std::int32_t>(i), i >= first});
      auto const logits = decoder.append(rows);
      for (std::int64_t i = std::max(from, first); i < to; ++i) {
        auto const row = logits.subspan(static_cast<std::size_t>(i - from) * classes, classes);
        double const loss = -log_probability_of(row, token(i + 1)).value;
        result.sum += loss;
        result.squares += loss * loss;
        ++result.tokens;
      }
      from = to;
    }
    ++result.windows;
    if (options.progress) options.progress(result.windows, windows, result);
  }
  return result;
}

}  // namespace tutti::infer
