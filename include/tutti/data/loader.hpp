// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Batches from token files. What a training step sees is a function of (seed, step, index in the global batch) alone,
/// so it does not depend on the number of ranks, and resuming needs nothing but the step.

#include <tutti/data/packing.hpp>
#include <tutti/data/permutation.hpp>
#include <tutti/data/token_corpus.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::data {

/// A contiguous part of [0, total).
struct Share {
  std::int64_t begin = 0, count = 0;

  friend bool operator==(Share const&, Share const&) = default;
};
/// Part `part` of `parts`: contiguous, in order, sizes differ by one at most.
constexpr Share share_of(std::int64_t total, std::int64_t part, std::int64_t parts) noexcept {
  std::int64_t const small = total / parts, larger = total % parts;
  return {part * small + std::min(part, larger), small + (part < larger ? 1 : 0)};
}

/// Bytes of text that the tokens stand for; special tokens stand for none. Errors: out_of_range, for a foreign token.
inline std::int64_t count_text_bytes(TokenCorpus const& corpus, Tokenizer const& tokenizer) {
  std::int64_t bytes = 0;
  for (io::TokenShard const& shard : corpus.shards())
    for (std::int32_t const token : shard.tokens())
      if (!tokenizer.is_special(token)) bytes += static_cast<std::int64_t>(tokenizer.token_bytes(token).size());
      else (void)tokenizer.token_bytes(token);
  return bytes;
}

/// Loss in nats, summed over predictions that together spell `text_bytes` bytes, as bits per byte of text.
inline double bits_per_byte(double summed_loss, std::int64_t text_bytes) noexcept {
  return text_bytes > 0 ? summed_loss / std::numbers::ln2 / static_cast<double>(text_bytes) : 0.0;
}

namespace detail {

/// A batch to fill: (rows, sequence), contiguous, both alike.
inline void check_batch(char const* operation, TensorView<std::int32_t> const& tokens,
                        TensorView<std::int32_t> const& targets, std::int64_t sequence) {
  if (tokens.rank() != 2 || tokens.shape() != targets.shape() || tokens.shape()[1] != sequence ||
      !tokens.contiguous() || !targets.contiguous())
    throw Error(ErrorKind::shape, operation,
                "tokens " + to_string(tokens.shape()) + " and targets " + to_string(targets.shape()) +
                    " are not two contiguous batches of rows of " + std::to_string(sequence));
}

/// Which shard holds window `window`; `ends[k]` windows lie in shards 0 to k.
inline std::size_t shard_of(std::span<std::int64_t const> ends, std::int64_t window) noexcept {
  return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), window) - ends.begin());
}

}  // namespace detail

/// Training batches. A corpus of W windows of `sequence` tokens is read once per epoch, in an order drawn anew for
/// each: sample number g = step * batch + index is window Permutation(seed, g / W, W)(g % W). Windows of a shard lie
/// end to end (targets are the tokens one further); where they begin is drawn per epoch too, so the cuts between
/// windows move. With whole documents, W are the sequences of a DocumentPacking, the same in every epoch.
class TrainLoader {
 public:
  /// `batch` is the global batch: sequences per step, over all ranks.
  /// `mark`: with which documents begin that sequences are to have whole; else they are windows.
  /// Errors: invalid_argument, for a batch or sequence below one; format, when a shard is shorter than one window.
  TrainLoader(TokenCorpus corpus, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
              std::optional<std::int32_t> mark = {})
      : corpus_(std::move(corpus)), batch_(batch), sequence_(sequence), seed_(seed) {
    if (batch < 1 || sequence < 1)
      throw Error(ErrorKind::invalid_argument, "TrainLoader",
                  "a batch of " + std::to_string(batch) + " sequences of " + std::to_string(sequence) +
                      " tokens is impossible. Ask for one or more");
    if (mark) {
      packing_.emplace(corpus_, sequence, *mark);
      ends_.push_back(packing_->rows());
      return;
    }
    std::int64_t total = 0;
    for (io::TokenShard const& shard : corpus_.shards()) {
      auto const tokens = static_cast<std::int64_t>(shard.tokens().size());
      std::int64_t const fit = (tokens - 1) / sequence;
      if (tokens < 2 || fit < 1)
        throw Error(ErrorKind::format, "TrainLoader",
                    "'" + shard.path() + "' has " + std::to_string(tokens) + " tokens and a window needs " +
                        std::to_string(sequence + 1) + ". Use more text or a shorter sequence");
      // Giving up one window of many frees a whole window of room to move the cuts in.
      total += fit >= 64 ? fit - 1 : fit;
      ends_.push_back(total);
    }
    if (total == 0) throw Error(ErrorKind::format, "TrainLoader", "there is no token file. Name at least one");
  }

  TokenCorpus const& corpus() const noexcept { return corpus_; }
  std::int64_t batch() const noexcept { return batch_; }
  std::int64_t sequence() const noexcept { return sequence_; }
  std::uint64_t seed() const noexcept { return seed_; }
  /// Whether targets of its batches may be ignored ones.
  bool leaves_out_targets() const noexcept { return corpus_.masked() || packing_.has_value(); }
  /// Which documents share a sequence; null where sequences are windows.
  DocumentPacking const* packing() const noexcept { return packing_ ? &*packing_ : nullptr; }
  /// Windows in an epoch.
  std::int64_t windows() const noexcept { return ends_.back(); }
  double epochs_at(std::int64_t step) const noexcept {
    return static_cast<double>(step) * static_cast<double>(batch_) / static_cast<double>(windows());
  }

  /// Where the sample `index` of step `step` lies. Requires sequences that are windows.
  struct Place {
    std::size_t shard = 0;
    std::int64_t token = 0;

    friend bool operator==(Place const&, Place const&) = default;
  };
  Place place(std::int64_t step, std::int64_t index) const {
    return place(checked_add(checked_multiply(step, batch_), index));
  }
  Place place(std::int64_t sample) const {
    auto const epoch = static_cast<std::uint64_t>(sample / windows());
    std::int64_t const window = Permutation(seed_, epoch, windows())(sample % windows());
    std::size_t const shard = detail::shard_of(ends_, window);
    std::int64_t const before = shard == 0 ? 0 : ends_[shard - 1], count = ends_[shard] - before;
    auto const tokens = static_cast<std::int64_t>(corpus_.shards()[shard].tokens().size());
    std::int64_t const room = std::min(tokens - 1 - count * sequence_, sequence_ - 1);
    std::uint32_t const draw =
        philox4x32({static_cast<std::uint32_t>(shard), 0x43555453u, static_cast<std::uint32_t>(epoch),
                    static_cast<std::uint32_t>(epoch >> 32)},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)})[0];
    return {shard, (window - before) * sequence_ + static_cast<std::int64_t>(draw) % (room + 1)};
  }

  /// Samples `first`, `first + 1`, ... of step `step`, one per row.
  /// Shapes: tokens, targets (rows, sequence).
  /// Ranks: rank r of P begins at share_of(batch / n, r, P).begin * n for n micro-steps; those go on from there.
  /// Errors: shape; out_of_range, when the rows go beyond the global batch.
  void fill(std::int64_t step, std::int64_t first, TensorView<std::int32_t> tokens,
            TensorView<std::int32_t> targets) const {
    require_rows("TrainLoader::fill", step, first, tokens, targets);
    for (std::int64_t row = 0; row < tokens.shape()[0]; ++row)
      fill_sample(checked_add(checked_multiply(step, batch_), first + row), tokens.data() + row * sequence_,
                  targets.data() + row * sequence_);
  }
  /// One sample by its number; `sequence` tokens and targets.
  void fill_sample(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const {
    if (packing_) {
      auto const epoch = static_cast<std::uint64_t>(sample / windows());
      packing_->fill(corpus_, Permutation(seed_, epoch, windows())(sample % windows()), tokens, targets);
      return;
    }
    Place const at = place(sample);
    auto const start = static_cast<std::size_t>(at.token), count = static_cast<std::size_t>(sequence_);
    corpus_.shards()[at.shard].tokens().copy(start, count, tokens);
    corpus_.copy_targets(at.shard, start + 1, count, targets);
  }
  /// Errors: as of `fill`.
  void require_rows(char const* operation, std::int64_t step, std::int64_t first,
                    TensorView<std::int32_t> const& tokens, TensorView<std::int32_t> const& targets) const {
    detail::check_batch(operation, tokens, targets, sequence_);
    std::int64_t const rows = tokens.shape()[0];
    if (step < 0 || first < 0 || first > batch_ - rows)
      throw Error(ErrorKind::out_of_range, operation,
                  "samples [" + std::to_string(first) + ", " + std::to_string(first + rows) + ") of step " +
                      std::to_string(step) + " are outside the batch of " + std::to_string(batch_));
  }

 private:
  TokenCorpus corpus_;
  std::int64_t batch_, sequence_;
  std::uint64_t seed_;
  std::optional<DocumentPacking> packing_;
  std::vector<std::int64_t> ends_;
};

/// Validation batches: windows end to end in file order, never shuffled. Every token but the first of each file, and
/// those that a mask leaves out, is predicted exactly once; the last window of a file is filled up with ignored
/// targets. A file begins with <|endoftext|>, which stands for no text, so the summed loss covers all of its text (that
/// counts) and `bits_per_byte` is exact. With whole documents, windows are the sequences of a
/// DocumentPacking.
class ValidationLoader {
 public:
  /// Errors: invalid_argument, for a sequence below one; format, when there is nothing to predict.
  explicit ValidationLoader(TokenCorpus corpus, std::int64_t sequence, std::optional<std::int32_t> mark = {})
      : corpus_(std::move(corpus)), sequence_(sequence) {
    if (sequence < 1)
      throw Error(ErrorKind::invalid_argument, "ValidationLoader",
                  "a sequence of " + std::to_string(sequence) + " tokens is impossible. Ask for one or more");
    std::int64_t total = 0;
    for (io::TokenShard const& shard : corpus_.shards()) {
      std::int64_t const here = std::max<std::int64_t>(static_cast<std::int64_t>(shard.tokens().size()) - 1, 0);
      io::TargetMask const* const mask = corpus_.mask(ends_.size());
      predictions_ += mask == nullptr || here == 0 ? here : mask->count(1, static_cast<std::size_t>(here));
      total += (here + sequence - 1) / sequence;
      ends_.push_back(total);
    }
    if (total == 0)
      throw Error(ErrorKind::format, "ValidationLoader",
                  "'" + corpus_.pattern() + "' has fewer than two tokens. Hold out more text");
    if (predictions_ == 0)
      throw Error(ErrorKind::format, "ValidationLoader",
                  "no token of '" + corpus_.pattern() + "' counts as a target. Hold out more text, or remove the mask");
    if (!mark) return;
    packing_.emplace(corpus_, sequence, *mark);
    ends_.assign(1, packing_->rows());
  }

  TokenCorpus const& corpus() const noexcept { return corpus_; }
  std::int64_t sequence() const noexcept { return sequence_; }
  std::int64_t windows() const noexcept { return ends_.back(); }
  /// Targets over all windows that are not ignored.
  std::int64_t predictions() const noexcept { return predictions_; }

  /// Windows `first`, `first + 1`, ..., one per row; rows from window `end` on, and beyond the last one, are all
  /// ignored targets. Returns the number of targets that count. Errors: shape.
  std::int64_t fill(std::int64_t first, TensorView<std::int32_t> tokens, TensorView<std::int32_t> targets,
                    std::int64_t end = std::numeric_limits<std::int64_t>::max()) const {
    detail::check_batch("ValidationLoader::fill", tokens, targets, sequence_);
    end = std::min(end, windows());
    std::int64_t counted = 0;
    for (std::int64_t row = 0; row < tokens.shape()[0]; ++row) {
      std::int64_t const window = first + row;
      std::int32_t* const inputs = tokens.data() + row * sequence_;
      std::int32_t* const wanted = targets.data() + row * sequence_;
      std::int64_t count = 0;
      if (packing_ && window >= 0 && window < end) {
        counted += packing_->fill(corpus_, window, inputs, wanted);
        continue;
      }
      if (window >= 0 && window < end) {
        std::size_t const shard = detail::shard_of(ends_, window);
        std::int64_t const begin = (window - (shard == 0 ? 0 : ends_[shard - 1])) * sequence_;
        auto const source = corpus_.shards()[shard].tokens();
        count = std::min(sequence_, static_cast<std::int64_t>(source.size()) - 1 - begin);
        auto const start = static_cast<std::size_t>(begin), many = static_cast<std::size_t>(count);
        source.copy(start, many, inputs);
        counted += corpus_.copy_targets(shard, start + 1, many, wanted);
      }
      std::fill_n(inputs + count, sequence_ - count, 0);
      std::fill_n(wanted + count, sequence_ - count, ignored_target);
    }
    return counted;
  }

 private:
  TokenCorpus corpus_;
  std::int64_t sequence_;
  std::int64_t predictions_ = 0;
  std::optional<DocumentPacking> packing_;
  std::vector<std::int64_t> ends_;
};

}  // namespace tutti::data
