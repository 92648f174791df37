// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A vocabulary as a grammar reads it: its tokens in the order of their bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

/// The texts of a vocabulary's tokens in the order of their bytes, so that tokens with a common beginning share the
/// walk through it. One for all matchers of a tokenizer.
class GrammarVocabulary {
 public:
  /// `pieces[id]`: the bytes of a token, empty for one that is no text. `ends`: tokens that end a generation.
  GrammarVocabulary(std::span<std::string const> pieces, std::span<std::int32_t const> ends)
      : pieces_(pieces.begin(), pieces.end()), ends_(ends.begin(), ends.end()) {
    for (std::size_t id = 0; id < pieces_.size(); ++id)
      if (!pieces_[id].empty() && !is_end(static_cast<std::int32_t>(id)))
        order_.push_back(static_cast<std::int32_t>(id));
    std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
      return std::pair(std::string_view(piece(a)), a) < std::pair(std::string_view(piece(b)), b);
    });
    for (std::size_t i = 0; i < order_.size(); ++i) {
      std::string_view const own = piece(order_[i]), before = i == 0 ? std::string_view() : piece(order_[i - 1]);
      std::size_t shared = 0;
      while (shared < own.size() && shared < before.size() && own[shared] == before[shared]) ++shared;
      shared_.push_back(shared);
    }
  }

  std::size_t size() const noexcept { return pieces_.size(); }
  std::string const& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }
  bool is_end(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  std::span<std::int32_t const> ends() const noexcept { return ends_; }
  /// Tokens by their bytes, and how many bytes each shares with the one before.
  std::span<std::int32_t const> order() const noexcept { return order_; }
  std::span<std::size_t const> shared() const noexcept { return shared_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::int32_t> ends_, order_;
  std::vector<std::size_t> shared_;
};

}  // namespace tutti::infer
