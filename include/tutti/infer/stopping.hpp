// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// When an answer ends, and why.

#include <tutti/data/text_pattern.hpp>
#include <tutti/data/tokenizer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

enum class StopReason : unsigned char {
  end_of_generation,  ///< the model drew a token that ends its answer
  text,               ///< one of StopOptions::texts was written; it is not part of the answer
  max_tokens,
  time,
  context_full,
  grammar,    ///< the grammar's sentence is complete
  cancelled,  ///< StopOptions::cancelled said so
  pattern,    ///< one of StopOptions::patterns fits what was written
  repetition,
  confidence,  ///< the model is sure that its answer is complete
  meaning,     ///< a sentence means what one of StopOptions::meanings does
};
constexpr std::string_view name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::end_of_generation: return "end of generation";
    case StopReason::text: return "stop text";
    case StopReason::max_tokens: return "max tokens";
    case StopReason::time: return "time";
    case StopReason::context_full: return "context full";
    case StopReason::grammar: return "grammar";
    case StopReason::cancelled: return "cancelled";
    case StopReason::pattern: return "stop pattern";
    case StopReason::repetition: return "repetition";
    case StopReason::confidence: return "confidence";
    case StopReason::meaning: return "stop meaning";
  }
  return "unknown";
}

struct StopOptions {
  std::vector<std::string> texts{};   ///< empty ones are passed over
  std::vector<std::int32_t> ends{};   ///< tokens that end the answer: end_tokens(tokenizer)
  std::int64_t max_tokens = -1;       ///< negative: no bound
  std::chrono::milliseconds time{0};  ///< from the first drawn token on; 0: no bound
  std::function<bool()> cancelled{};  ///< asked before every token
  /// Regular expressions of PCRE2 on all that was written; what they fit stays part of the answer.
  std::vector<data::TextPattern> patterns{};
  /// Ends an answer that says the same sentence or line so many times in a row; 0: never.
  std::int64_t repetitions = 0;
  /// Behind a sentence, ends an answer that the model would end with at least this probability; 0: never.
  double confidence = 0;
  /// Ends an answer behind a sentence or line whose mean hidden state has at least the cosine `meaning_threshold` with
  /// one of these: mean hidden states of texts, as mean_hidden gives them and Completion::embedding.
  std::vector<std::vector<float>> meanings{};
  double meaning_threshold = 0.9;
  /// `ends` are not drawn before one of these was written; none: they may be.
  std::vector<std::string> required{};
};

/// The tokens with which models end an answer: those that the vocabulary names, and marks that are known for it.
inline std::vector<std::int32_t> end_tokens(data::Tokenizer const& tokenizer) {
  std::vector<std::int32_t> ends;
  auto const add = [&](std::optional<std::int32_t> id) {
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  };
  add(tokenizer.roles().end);
  add(tokenizer.roles().end_of_turn);
  for (char const* const mark : {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",
                                 "<|end|>", "<end_of_turn>", "</s>"})
    add(tokenizer.special(mark));
  return ends;
}

/// A prompt without a token begins with what stands in front of any text, or behind one, where the vocabulary has it.
inline void begin_text(std::vector<std::int32_t>& prompt, data::Tokenizer const& tokenizer) {
  if (!prompt.empty()) return;
  if (auto const begin = tokenizer.roles().begin) return prompt.push_back(*begin);
  if (auto const ends = end_tokens(tokenizer); !ends.empty()) prompt.push_back(ends.front());
}

/// The bytes of every token, empty for one that is no text: what grammars and DRY read.
inline std::vector<std::string> token_pieces(data::Tokenizer const& tokenizer) {
  std::vector<std::string> pieces;
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id)
    pieces.push_back(tokenizer.is_special(id) ? std::string() : tokenizer.token_bytes(id));
  return pieces;
}

/// Which hidden states an embedding is the mean of.
enum class Pooling : unsigned char { mean, cls, last };

/// The mean of hidden states, for StopOptions::meanings and embeddings, row after row.
class HiddenMean {
 public:
  explicit HiddenMean(Pooling pooling = Pooling::mean) : pooling_(pooling) {}
  /// Of all rows, or of the first or last one.
  void add(std::span<float const> row) {
    if (pooling_ == Pooling::cls && rows_ > 0) return;
    if (pooling_ == Pooling::last) clear();
    ++rows_;
    sum_.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) sum_[i] += double{row[i]};
  }
  void clear() noexcept { sum_.clear(), rows_ = 0; }
  /// Of length one; zeros where nothing was added, or it cancels.
  std::vector<float> direction() const { return normalised(2); }
  /// By the norm of the power `norm`; 0: the largest element becomes 32760; -1: the mean as it is, as llama.cpp has
  /// them.
  std::vector<float> normalised(std::int64_t norm) const {
    double length = norm < 0 ? static_cast<double>(rows_) : 0;
    for (double const value : sum_) {
      double const size = std::abs(value);
      if (norm == 0) length = std::max(length, size / 32760);
      if (norm > 0) length += norm == 2 ? size * size : std::pow(size, static_cast<double>(norm));
    }
    if (norm > 0) length = norm == 2 ? std::sqrt(length) : std::pow(length, 1 / static_cast<double>(norm));
    std::vector<float> result;
    for (double const value : sum_) result.push_back(static_cast<float>(length > 0 ? value / length : 0));
    return result;
  }
  /// The largest cosine with one of these; -1 without any, and where lengths differ or are zero.
  double nearest(std::vector<std::vector<float>> const& meanings) const {
    double best = -1;
    double const own = std::sqrt(std::inner_product(sum_.begin(), sum_.end(), sum_.begin(), 0.0));
    for (std::vector<float> const& meaning : meanings) {
      if (meaning.size() != sum_.size()) continue;
      double dot = 0, square = 0;
      for (std::size_t i = 0; i < meaning.size(); ++i)
        dot += sum_[i] * double{meaning[i]}, square += double{meaning[i]} * double{meaning[i]};
      if (own > 0 && square > 0) best = std::max(best, dot / (own * std::sqrt(square)));
    }
    return best;
  }

 private:
  Pooling pooling_;
  std::int64_t rows_ = 0;
  std::vector<double> sum_;
};

/// How often the last sentence or line of `text` stands there in a row. They end with . ! ? or a line's end; spaces
/// around them do not count, and what is not yet ended does not either.
inline std::int64_t repetitions_at_end(std::string_view text) {
  auto const ends = [](char c) { return c == '.' || c == '!' || c == '?' || c == '\n'; };
  auto const trimmed = [](std::string_view part) {
    auto const first = part.find_first_not_of(" \t\r\n"), last = part.find_last_not_of(" \t\r\n");
    return first == std::string_view::npos ? std::string_view() : part.substr(first, last - first + 1);
  };
  std::string_view last;
  std::int64_t count = 0;
  std::size_t end = text.size();
  while (end > 0 && !ends(text[end - 1])) --end;
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && !ends(text[begin - 1])) --begin;
    std::string_view const part = trimmed(text.substr(begin, end - begin));
    end = begin;
    if (part.find_first_not_of(".!?") == std::string_view::npos) continue;  // blank lines, dots in a row
    if (count > 0 && part != last) break;
    last = part, ++count;
  }
  return count;
}

/// Holds back text that may be the beginning of a stop text.
class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
    std::erase_if(texts_, [](std::string const& text) { return text.empty(); });
  }
  /// What can be shown after `piece`; sets `found` when a stop text is complete, which, as all behind it, is dropped.
  std::string push(std::string_view piece, bool& found) {
    held_ += piece;
    std::size_t end = std::string::npos;
    for (std::string const& text : texts_) end = std::min(end, held_.find(text));
    if (end != std::string::npos) {
      found = true;
      return std::exchange(held_, {}).substr(0, end);
    }
    std::size_t kept = 0;
    for (std::string const& text : texts_)
      for (std::size_t size = std::min(text.size() - 1, held_.size()); size > kept; --size)
        if (held_.ends_with(std::string_view(text).substr(0, size))) kept = size;
    std::string ready = held_.substr(0, held_.size() - kept);
    held_.erase(0, ready.size());
    return ready;
  }
  /// What was held back, when nothing follows.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> texts_;
  std::string held_;
};

}  // namespace tutti::infer
