// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a prompt to the text that follows it, piece by piece.

#include <tutti/data/stream_decoder.hpp>
#include <tutti/infer/grammar_matcher.hpp>
#include <tutti/infer/log_probabilities.hpp>
#include <tutti/infer/sampler.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/stopping.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

struct Completion {
  std::string text;  ///< all that was emitted
  StopReason reason = StopReason::end_of_generation;
  std::vector<std::int32_t> tokens;  ///< drawn, without the one that ended the answer
  std::vector<TokenLogProbability> log_probabilities;  ///< of each of them, where they were asked for
  std::int64_t prompt_tokens = 0, reused_tokens = 0;
  double prompt_seconds = 0, seconds = 0;  ///< before the first token was drawn; from then on
  std::vector<float> embedding;  ///< where one was asked for: the mean hidden state of the prompt, of length one
};

/// What becomes of logits, token after token: who has them calls `draw` and appends what it returns. `complete` does so
/// for one sequence, Service for many.
class Drawing {
 public:
  /// Borrows the tokenizer. `emit(std::string_view)` gets text as soon as it cannot be part of a stop text, whole
  /// characters only. The sampler forgets what it knew and observes the prompt; the grammar, where there is one, begins
  /// anew.
  Drawing(Sampler& sampler, data::Tokenizer const& tokenizer, std::span<std::int32_t const> prompt,
          StopOptions const& stop, std::function<void(std::string_view)> emit, GrammarMatcher* grammar = nullptr)
      : sampler_(sampler),
        tokenizer_(tokenizer),
        stop_(stop),
        emit_(std::move(emit)),
        grammar_(grammar),
        characters_(tokenizer, true),
        texts_(stop.texts) {
    result_.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    sampler_.reset();
    sampler_.observe(prompt);
    if (grammar_ != nullptr) grammar_->reset();
  }

  /// The token to append, or nothing when the answer has ended. `room`: the cache has a place for it.
  /// Errors: those of the sampler.
  std::optional<std::int32_t> draw(std::span<float const> logits, bool room) {
    if (result_.tokens.empty() && !begun_) {
      begun_ = true;
      result_.prompt_seconds = since(begin_);
      first_ = Clock::now();
    }
    if (stop_.max_tokens >= 0 && static_cast<std::int64_t>(result_.tokens.size()) >= stop_.max_tokens)
      return end(StopReason::max_tokens);
    if (stop_.cancelled && stop_.cancelled()) return end(StopReason::cancelled);
    if (stop_.time.count() > 0 && Clock::now() - first_ > stop_.time) return end(StopReason::time);
    if (grammar_ != nullptr && grammar_->finished()) return end(StopReason::grammar);
    std::int32_t const token = grammar_ != nullptr ? sampler_(logits, *grammar_) : sampler_(logits);
    if (std::find(stop_.ends.begin(), stop_.ends.end(), token) != stop_.ends.end())
      return end(StopReason::end_of_generation);
    if (grammar_ != nullptr) grammar_->accept(token);
    if (likeliest_) result_.log_probabilities.push_back(log_probability_of(logits, token, *likeliest_));
    result_.tokens.push_back(token);
    // A model may have more classes than its tokenizer has tokens; those mean nothing.
    if (token < tokenizer_.vocabulary()) give(texts_.push(characters_.push(token), found_));
    if (found_) return end(StopReason::text);
    if (!room) return end(StopReason::context_full);
    return token;
  }
  /// Ends the answer from outside: what was held back is emitted.
  std::nullopt_t end(StopReason reason) {
    if (!found_) {
      bool late = false;
      give(texts_.push(characters_.finish(), late));
      if (late) reason = StopReason::text;
      else give(texts_.finish());
    }
    result_.reason = reason;
    result_.seconds = begun_ ? since(first_) : 0;
    return std::nullopt;
  }

  /// Result has the log-probability of every token from now on, with so many of the likeliest beside it.
  void keep_log_probabilities(std::int64_t likeliest) noexcept { likeliest_ = likeliest; }
  void reused(std::int64_t tokens) noexcept { result_.reused_tokens = tokens; }
  Completion& result() noexcept { return result_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }
  void give(std::string const& text) {
    if (text.empty()) return;
    result_.text += text;
    if (emit_) emit_(text);
  }

  Sampler& sampler_;
  data::Tokenizer const& tokenizer_;
  StopOptions stop_;
  std::function<void(std::string_view)> emit_;
  GrammarMatcher* grammar_;
  data::StreamDecoder characters_;
  StopTexts texts_;
  Completion result_;
  Clock::time_point begin_ = Clock::now(), first_{};
  bool begun_ = false, found_ = false;
  std::optional<std::int64_t> likeliest_;
};

/// Draws what follows `prompt`, handing text to `emit` as Drawing does.
/// `likeliest`: Completion::log_probabilities is wanted, with so many of the likeliest tokens each.
/// Errors    out_of_range: the prompt is longer than the cache, more likeliest tokens than there are; those of the
///           sampler
inline Completion complete(Sequence& sequence, Sampler& sampler, data::Tokenizer const& tokenizer,
                           std::span<std::int32_t const> prompt, StopOptions const& stop,
                           std::function<void(std::string_view)> emit, GrammarMatcher* grammar = nullptr,
                           std::optional<std::int64_t> likeliest = std::nullopt) {
  Drawing drawing(sampler, tokenizer, prompt, stop, std::move(emit), grammar);
  if (likeliest) drawing.keep_log_probabilities(*likeliest);
  std::span<float const> logits = sequence.become(prompt);
  drawing.reused(sequence.reused());
  while (auto const token = drawing.draw(logits, sequence.length() < sequence.capacity()))
    logits = sequence.append({&*token, 1});
  return std::move(drawing.result());
}

}  // namespace tutti::infer
