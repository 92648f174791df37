// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Foretells that a text goes on as it did the last time: for answers that quote their prompt, code, tables.

#include <tutti/core/error.hpp>
#include <tutti/infer/speculation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tutti::infer {

struct NgramOptions {
  std::int64_t longest = 4, shortest = 2;  ///< tokens at the end of the text that must have stood before
};

/// Looks for the last tokens of the text before them, the longest run first, and proposes what followed it the last
/// time; where that reaches the text's end, it goes on with the proposals. A model of Drafter: its drafts are certain,
/// and so a seed gives the text that it gives without them.
/// Cost  constant for each token that the text has more than in the last call; memory: some words for each token
/// Source: Saxena, "Prompt Lookup Decoding", 2023.
class NgramDrafter {
 public:
  /// Errors: invalid_argument, for runs of less than one token or a shortest above the longest.
  explicit NgramDrafter(NgramOptions const& options = {}) : options_(options) {
    if (options.shortest < 1 || options.longest < options.shortest || options.longest > 64)
      throw Error(ErrorKind::invalid_argument, "NgramDrafter",
                  "runs must have one token at least and 64 at most, and the longest not fewer than the shortest");
    behind_.resize(static_cast<std::size_t>(options.longest - options.shortest + 1));
  }

  std::vector<Proposal> draft(std::span<std::int32_t const> text, std::int64_t most) {
    learn(text);
    std::vector<Proposal> drafts;
    for (std::size_t size = static_cast<std::size_t>(options_.longest);
         size >= static_cast<std::size_t>(options_.shortest) && drafts.empty(); --size) {
      if (size >= text.size()) continue;
      auto const found = runs(size).find(key(text.last(size)));
      if (found == runs(size).end()) continue;
      std::size_t const from = found->second;
      if (!std::equal(text.end() - static_cast<std::ptrdiff_t>(size), text.end(),
                      text.begin() + static_cast<std::ptrdiff_t>(from - size)))
        continue;  // another run with the same key
      for (std::size_t i = from; static_cast<std::int64_t>(drafts.size()) < most; ++i)
        drafts.push_back({i < text.size() ? text[i] : drafts[i - text.size()].token, {}});
    }
    return drafts;
  }

 private:
  using Runs = std::unordered_map<std::uint64_t, std::size_t>;  // by key: where the last such run ended

  Runs& runs(std::size_t size) { return behind_[size - static_cast<std::size_t>(options_.shortest)]; }
  static std::uint64_t key(std::span<std::int32_t const> run) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over tokens
    for (std::int32_t const token : run) hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
    return hash;
  }
  /// Runs that end before the text's last token. A text that is not the last one with more behind it is read anew.
  void learn(std::span<std::int32_t const> text) {
    if (text.size() < text_.size() || !std::equal(text_.begin(), text_.end(), text.begin())) {
      for (Runs& known : behind_) known.clear();
      text_.clear();
    }
    for (std::size_t end = std::max<std::size_t>(text_.size(), 1); end < text.size(); ++end)
      for (auto size = static_cast<std::size_t>(options_.shortest); size <= static_cast<std::size_t>(options_.longest);
           ++size)
        if (size <= end) runs(size)[key(text.subspan(end - size, size))] = end;
    text_.assign(text.begin(), text.end());
  }

  NgramOptions options_;
  std::vector<Runs> behind_;
  std::vector<std::int32_t> text_;
};

}  // namespace tutti::infer
