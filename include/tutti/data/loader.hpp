// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Batches from token files. What a training step sees is a function of (seed, step, index in the global batch) alone,
/// so it does not depend on the number of ranks, and resuming needs nothing but the step.

#include <tutti/data/permutation.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/io/target_mask.hpp>
#include <tutti/tensor/view.hpp>

#include <glob.h>

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

/// Target of a position whose loss does not count.
inline constexpr std::int32_t ignored_target = -1;

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

/// Token files in order, all opened and checked at once, mapped, with the masks of targets that stand beside them.
class TokenCorpus {
 public:
  /// `pattern` as a shell understands it ("data/train_*.bin"); files in the order of their names.
  /// Errors: io, when nothing matches; format, naming the file.
  explicit TokenCorpus(std::string const& pattern) : pattern_(pattern) {
    ::glob_t found{};
    struct Guard {
      ::glob_t* found;
      ~Guard() { ::globfree(found); }
    } const guard{&found};
    int const result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
    if (result == GLOB_NOSPACE)
      throw Error(ErrorKind::out_of_memory, "TokenCorpus", "no memory to expand '" + pattern + "'");
    if (result != 0 || found.gl_pathc == 0)
      throw Error(ErrorKind::io, "TokenCorpus",
                  "no file matches '" + pattern + "'. Check the path, or make token files with prepare_text");
    for (std::size_t i = 0; i < found.gl_pathc; ++i) shards_.emplace_back(std::string(found.gl_pathv[i]));
    find_masks();
  }
  explicit TokenCorpus(std::vector<io::TokenShard> shards) : shards_(std::move(shards)) { find_masks(); }

  std::string const& pattern() const noexcept { return pattern_; }
  std::vector<io::TokenShard> const& shards() const noexcept { return shards_; }
  std::int64_t tokens() const noexcept {
    std::int64_t total = 0;
    for (io::TokenShard const& shard : shards_) total += static_cast<std::int64_t>(shard.tokens().size());
    return total;
  }
  /// Of a shard; null where all of its tokens count as targets.
  io::TargetMask const* mask(std::size_t shard) const noexcept { return masks_[shard] ? &*masks_[shard] : nullptr; }
  bool masked() const noexcept {
    return std::any_of(masks_.begin(), masks_.end(), [](auto const& mask) { return mask.has_value(); });
  }
  /// Tokens that count as targets.
  std::int64_t targets() const noexcept {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < shards_.size(); ++i)
      total += masks_[i] ? masks_[i]->counted() : static_cast<std::int64_t>(shards_[i].tokens().size());
    return total;
  }
  /// `count` tokens of a shard from `begin` on, as targets. Gives the number of those that count.
  std::int64_t copy_targets(std::size_t shard, std::size_t begin, std::size_t count, std::int32_t* to) const noexcept {
    shards_[shard].tokens().copy(begin, count, to);
    if (!masks_[shard]) return static_cast<std::int64_t>(count);
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < count; ++i)
      if ((*masks_[shard])[begin + i]) ++counted;
      else to[i] = ignored_target;
    return counted;
  }
  /// Reads every token once. Errors: format, naming file and position of a token outside [0, vocabulary).
  void require_vocabulary(std::int64_t vocabulary) const {
    for (io::TokenShard const& shard : shards_) {
      auto const tokens = shard.tokens();
      std::size_t at = 0;
      while (at < tokens.size() && tokens[at] >= 0 && tokens[at] < vocabulary) ++at;
      if (at < tokens.size())
        throw Error(ErrorKind::format, "TokenCorpus",
                    "token " + std::to_string(tokens[at]) + " at position " + std::to_string(at) + " of '" +
                        shard.path() + "' is outside the vocabulary of " + std::to_string(vocabulary) +
                        ". Use the tokenizer and the model that belong to the data");
    }
  }

 private:
  void find_masks() {
    for (io::TokenShard const& shard : shards_) {
      masks_.emplace_back();
      if (io::file_exists(io::mask_path(shard.path()))) masks_.back().emplace(shard);
    }
  }

  std::string pattern_;
  std::vector<io::TokenShard> shards_;
  std::vector<std::optional<io::TargetMask>> masks_;
};

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
/// windows move.
class TrainLoader {
 public:
  /// `batch` is the global batch: sequences per step, over all ranks.
  /// Errors: invalid_argument, for a batch or sequence below one; format, when a shard is shorter than one window.
  TrainLoader(TokenCorpus corpus, std::int64_t batch, std::int64_t sequence, std::uint64_t seed)
      : corpus_(std::move(corpus)), batch_(batch), sequence_(sequence), seed_(seed) {
    if (batch < 1 || sequence < 1)
      throw Error(ErrorKind::invalid_argument, "TrainLoader",
                  "a batch of " + std::to_string(batch) + " sequences of " + std::to_string(sequence) +
                      " tokens is impossible. Ask for one or more");
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
  bool leaves_out_targets() const noexcept { return corpus_.masked(); }
  /// Windows in an epoch.
  std::int64_t windows() const noexcept { return ends_.back(); }
  double epochs_at(std::int64_t step) const noexcept {
    return static_cast<double>(step) * static_cast<double>(batch_) / static_cast<double>(windows());
  }

  /// Where the sample `index` of step `step` lies.
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
  std::vector<std::int64_t> ends_;
};

/// Validation batches: windows end to end in file order, never shuffled. Every token but the first of each file, and
/// those that a mask leaves out, is predicted exactly once; the last window of a file is filled up with ignored
/// targets. A file begins with <|endoftext|>, which stands for no text, so the summed loss covers all of its text (that
/// counts) and `bits_per_byte` is exact.
class ValidationLoader {
 public:
  /// Errors: invalid_argument, for a sequence below one; format, when there is nothing to predict.
  ValidationLoader(TokenCorpus corpus, std::int64_t sequence) : corpus_(std::move(corpus)), sequence_(sequence) {
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
  std::vector<std::int64_t> ends_;
};

}  // namespace tutti::data
