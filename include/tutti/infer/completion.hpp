// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From a prompt to the text that follows it, piece by piece.

#include <tutti/data/stream_decoder.hpp>
#include <tutti/infer/grammar_matcher.hpp>
#include <tutti/infer/grammar_triggers.hpp>
#include <tutti/infer/log_probabilities.hpp>
#include <tutti/infer/sampler.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/speculation.hpp>
#include <tutti/infer/stopping.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
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
  std::vector<std::int32_t> tokens;                    ///< drawn, without the one that ended the answer
  std::vector<TokenLogProbability> log_probabilities;  ///< of each of them, where they were asked for
  std::int64_t prompt_tokens = 0, reused_tokens = 0;
  double queue_seconds = 0;                ///< in a service's queue
  double prompt_seconds = 0, seconds = 0;  ///< from then until the first token was drawn; from then on
  std::vector<float> embedding;  ///< where one was asked for: the mean hidden state of the prompt, of length one
  std::vector<float> logits;     ///< where they were asked for: the last ones
  std::int64_t shifts = 0;       ///< how often old tokens were dropped from a full context
  SpeculationCounts speculation{};
};

/// What becomes of logits, token after token: who has them calls `draw` and appends what it returns. `complete` does so
/// for one sequence, Service for many.
class Drawing {
 public:
  /// Borrows the tokenizer. `emit(std::string_view)` gets text as soon as it cannot be part of a stop text, whole
  /// characters only. The sampler forgets what it knew and observes the prompt; the grammar, where there is one, begins
  /// anew, and sleeps until one of `triggers`: text that does not fit the grammar from a trigger on wakes it not.
  Drawing(Sampler& sampler, data::Tokenizer const& tokenizer, std::span<std::int32_t const> prompt,
          StopOptions const& stop, std::function<void(std::string_view)> emit, GrammarMatcher* grammar = nullptr,
          GrammarTriggers triggers = {})
      : sampler_(sampler),
        tokenizer_(tokenizer),
        stop_(stop),
        emit_(std::move(emit)),
        grammar_(grammar),
        triggers_(std::move(triggers)),
        awake_(triggers_.empty()),
        characters_(tokenizer, true),
        texts_(stop.texts) {
    result_.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    sampler_.reset();
    sampler_.observe(prompt);
    if (grammar_ != nullptr) grammar_->reset();
  }

  /// The token to append, or nothing when the answer has ended. `room`: the cache has a place for it. `proposal`: what
  /// Sampler does with one. Errors: those of the sampler.
  std::optional<std::int32_t> draw(std::span<float const> logits, bool room, Proposal const* proposal = nullptr) {
    if (result_.tokens.empty() && !begun_) {
      begun_ = true;
      result_.prompt_seconds = since(begin_);
      first_ = Clock::now();
    }
    if (stop_.max_tokens >= 0 && static_cast<std::int64_t>(result_.tokens.size()) >= stop_.max_tokens)
      return end(StopReason::max_tokens);
    if (stop_.cancelled && stop_.cancelled()) return end(StopReason::cancelled);
    if (stop_.time.count() > 0 && Clock::now() - first_ > stop_.time) return end(StopReason::time);
    bool const ruled = grammar_ != nullptr && awake_;
    if (ruled && grammar_->finished()) return end(StopReason::grammar);
    if (stop_.confidence > 0 && sentence_ended() && end_probability(logits) >= stop_.confidence)
      return end(StopReason::confidence);
    if (!stop_.meanings.empty() && sentence_ended()) {
      if (sentence_.nearest(stop_.meanings) >= stop_.meaning_threshold) return end(StopReason::meaning);
      sentence_.clear();
    }
    bool const must_go_on = !stop_.required.empty() && !required_seen();
    auto const restrict = [&](Candidates& candidates) {
      if (must_go_on) candidates.keep_if([&](std::int32_t id) { return !ends(id); });
      if (ruled) (*grammar_)(candidates);
    };
    std::int32_t const token = sampler_(logits, restrict, proposal);
    if (ends(token)) return end(StopReason::end_of_generation);
    if (ruled) grammar_->accept(token);
    if (likeliest_) result_.log_probabilities.push_back(log_probability_of(logits, token, *likeliest_));
    result_.tokens.push_back(token);
    // A model may have more classes than its tokenizer has tokens; those mean nothing.
    if (token < tokenizer_.vocabulary()) {
      std::string const piece = characters_.push(token);
      written_ += piece;
      if (grammar_ != nullptr && !awake_) awake_ = triggers_.wake(*grammar_, written_, token);
      give(texts_.push(piece, found_));
      if (found_) return end(StopReason::text);
      if (!piece.empty())
        for (data::TextPattern const& pattern : stop_.patterns)
          if (pattern.find(written_)) return end(StopReason::pattern);
      if (stop_.repetitions > 0 && !piece.empty() && repetitions_at_end(written_) >= stop_.repetitions)
        return end(StopReason::repetition);
    }
    if (!room) return end(StopReason::context_full);
    return token;
  }
  /// Draws behind a token, and behind each of `drafts` that it draws. `logits` (1 + drafts, vocabulary): those that
  /// follow the token and each draft. `room`: places that the cache has behind the token. `hidden` (1 + drafts,
  /// channels): the hidden states of these, for StopOptions::meanings; empty: none. Errors: of draw.
  Verified verify(std::span<float const> logits, std::span<Proposal const> drafts, std::int64_t room,
                  std::span<float const> hidden = {}) {
    Verified result;
    std::size_t const classes = logits.size() / (drafts.size() + 1), channels = hidden.size() / (drafts.size() + 1);
    for (std::size_t i = 0;; ++i) {
      Proposal const* const draft = i < drafts.size() ? &drafts[i] : nullptr;
      if (!stop_.meanings.empty() && channels > 0) sentence_.add(hidden.subspan(i * channels, channels));
      result.next = draw(logits.subspan(i * classes, classes), static_cast<std::int64_t>(i) < room, draft);
      if (!result.next || draft == nullptr || *result.next != draft->token) break;
      ++result.accepted;
    }
    result_.speculation.drafted += static_cast<std::int64_t>(drafts.size());
    result_.speculation.accepted += result.accepted;
    return result;
  }
  /// Tokens that may still be drawn.
  std::int64_t left() const noexcept {
    auto const drawn = static_cast<std::int64_t>(result_.tokens.size());
    return stop_.max_tokens < 0 ? std::numeric_limits<std::int64_t>::max() : stop_.max_tokens - drawn;
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
  bool ends(std::int32_t token) const {
    return std::find(stop_.ends.begin(), stop_.ends.end(), token) != stop_.ends.end();
  }
  bool sentence_ended() const {
    auto const last = written_.find_last_not_of(" \t\r");
    return last != std::string::npos && std::string_view(".!?\n").find(written_[last]) != std::string_view::npos;
  }
  double end_probability(std::span<float const> logits) const {
    double sum = 0;
    for (std::int32_t const token : stop_.ends) sum += std::exp(log_probability_of(logits, token).value);
    return sum;
  }
  bool required_seen() {
    if (!required_seen_)
      required_seen_ = std::any_of(stop_.required.begin(), stop_.required.end(),
                                   [&](std::string const& text) { return written_.find(text) != std::string::npos; });
    return required_seen_;
  }
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
  GrammarTriggers triggers_;
  bool awake_;  // the grammar rules
  data::StreamDecoder characters_;
  StopTexts texts_;
  Completion result_;
  Clock::time_point begin_ = Clock::now(), first_{};
  bool begun_ = false, found_ = false, required_seen_ = false;
  HiddenMean sentence_;  // of what was written since the last sentence's end
  std::string written_;  // whole characters, with what is held back
  std::optional<std::int64_t> likeliest_;
};

/// The direction of a text's mean hidden state, for StopOptions::meanings; the sequence becomes the text.
/// Errors: of Sequence::append; invalid_argument for a text without tokens.
inline std::vector<float> mean_hidden(Sequence& sequence, std::span<std::int32_t const> text) {
  HiddenMean mean;
  sequence.reset();
  auto const batch = static_cast<std::size_t>(sequence.decoder().options().batch),
             channels = static_cast<std::size_t>(sequence.decoder().model().channels());
  if (text.empty()) throw Error(ErrorKind::invalid_argument, "mean_hidden", "the text has no tokens");
  for (std::size_t first = 0; first < text.size(); first += batch) {
    static_cast<void>(sequence.append(text.subspan(first, std::min(batch, text.size() - first))));
    std::span<float const> const hidden = sequence.decoder().hidden();
    for (std::size_t row = 0; row * channels < hidden.size(); ++row) mean.add(hidden.subspan(row * channels, channels));
  }
  return mean.direction();
}

/// Draws what follows `prompt`, handing text to `emit` as Drawing does.
/// `likeliest`: Completion::log_probabilities is wanted, with so many of the likeliest tokens each.
/// `speculation`: tokens go through the model several at once where its drafter foretells them; what is drawn, and how
/// often, is the same.
/// Errors    out_of_range: the prompt is longer than the cache, more likeliest tokens than there are; those of the
///           sampler and the drafter
inline Completion complete(Sequence& sequence, Sampler& sampler, data::Tokenizer const& tokenizer,
                           std::span<std::int32_t const> prompt, StopOptions const& stop,
                           std::function<void(std::string_view)> emit, GrammarMatcher* grammar = nullptr,
                           std::optional<std::int64_t> likeliest = std::nullopt, Speculation* speculation = nullptr) {
  Drawing drawing(sampler, tokenizer, prompt, stop, std::move(emit), grammar);
  if (likeliest) drawing.keep_log_probabilities(*likeliest);
  std::span<float const> logits = sequence.become(prompt, stop.cancelled);
  drawing.reused(sequence.reused());
  auto token = drawing.draw(logits, sequence.length() < sequence.capacity());
  std::vector<std::int32_t> rows;
  while (token) {
    std::int64_t const before = sequence.length(), room = sequence.capacity() - before - 1;
    std::span<Proposal const> drafts;
    if (speculation != nullptr)
      drafts = speculation->draft(sequence.tokens(), *token, std::min(room, drawing.left() - 1));
    rows.assign(1, *token);
    for (Proposal const& draft : drafts) rows.push_back(draft.token);
    std::span<float const> const each = sequence.append_each(rows);
    Verified const verified = drawing.verify(each, drafts, room, sequence.decoder().hidden());
    if (speculation != nullptr) speculation->verified(verified.accepted);
    sequence.truncate(before + 1 + verified.accepted);
    token = verified.next;
  }
  return std::move(drawing.result());
}

}  // namespace tutti::infer
