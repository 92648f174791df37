// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The token files of a set, with what of them counts as targets.

#include <tutti/core/error.hpp>
#include <tutti/io/target_mask.hpp>
#include <tutti/io/token_shard.hpp>

#include <glob.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::data {

/// Target of a position whose loss does not count.
inline constexpr std::int32_t ignored_target = -1;

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

}  // namespace tutti::data
