// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One text in one slot of a decoder: what its cache holds, and what follows.

#include <tutti/infer/decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Cost  a text that begins as the last one did goes on from there: its first tokens are not computed again
class Sequence {
 public:
  /// Borrows the decoder. The slot's cache is this sequence's alone.
  explicit Sequence(Decoder& decoder, std::int32_t slot = 0) : decoder_(decoder), slot_(slot) {}

  std::int64_t length() const noexcept { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t capacity() const noexcept { return decoder_.capacity(); }
  /// The tokens whose keys and values the cache holds.
  std::span<std::int32_t const> tokens() const noexcept { return tokens_; }
  Decoder& decoder() const noexcept { return decoder_; }
  std::int32_t slot() const noexcept { return slot_; }
  void reset() noexcept { tokens_.clear(); }
  /// Says what the cache holds, for who has put it there: restore_sequence does.
  void adopt(std::vector<std::int32_t> tokens) noexcept { tokens_ = std::move(tokens); }
  /// Forgets what follows the first `length` tokens.
  void truncate(std::int64_t length) {
    if (length < this->length()) tokens_.resize(static_cast<std::size_t>(std::max<std::int64_t>(length, 0)));
  }

  /// Appends tokens and returns the logits (vocabulary) that follow the last one; they stay valid until the decoder's
  /// next call.
  /// Errors: invalid_argument for no token; out_of_range past the capacity or for an unknown token, with nothing
  /// appended.
  std::span<float const> append(std::span<std::int32_t const> tokens) { return append(tokens, false); }
  /// The same, with the logits (tokens, vocabulary) that follow each.
  std::span<float const> append_each(std::span<std::int32_t const> tokens) { return append(tokens, true); }

  /// The logits that follow `text`, of which the beginning that the cache holds already is kept. Errors: of append.
  /// `cancelled` is asked between pieces of 256 tokens; once it says so, the text goes no further.
  std::span<float const> become(std::span<std::int32_t const> text, std::function<bool()> const& cancelled = {}) {
    std::size_t same = 0;
    while (same < text.size() && same < tokens_.size() && text[same] == tokens_[same]) ++same;
    if (same == text.size() && same > 0) --same;  // the last token goes in again, for its logits
    reused_ = static_cast<std::int64_t>(same);
    truncate(reused_);
    text = text.subspan(same);
    constexpr std::size_t piece = 256;
    bool const fits = static_cast<std::int64_t>(text.size()) <= capacity() - length();
    while (cancelled && fits && text.size() > piece) {
      std::span<float const> const logits = append(text.first(piece));
      if (cancelled()) return logits;
      text = text.subspan(piece);
    }
    return append(text);
  }
  /// Tokens that the last `become` found in the cache.
  std::int64_t reused() const noexcept { return reused_; }

 private:
  std::span<float const> append(std::span<std::int32_t const> tokens, bool each) {
    auto const count = static_cast<std::int64_t>(tokens.size());
    if (count == 0) throw Error(ErrorKind::invalid_argument, "Sequence::append", "there is no token to append");
    if (count > capacity() - length())
      throw Error(ErrorKind::out_of_range, "Sequence::append",
                  concat(count, " tokens do not fit behind ", length(), " of ", capacity(),
                         ". Reset and append the last ones, or make the decoder with more capacity"));
    std::vector<NewToken> rows;
    for (std::int32_t const token : tokens)
      rows.push_back({token, slot_, static_cast<std::int32_t>(length() + static_cast<std::int64_t>(rows.size())),
                      each || rows.size() + 1 == tokens.size()});
    std::span<float const> const logits = decoder_.append(rows);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    return logits;
  }

  Decoder& decoder_;
  std::int32_t slot_;
  std::vector<std::int32_t> tokens_;
  std::int64_t reused_ = 0;
};

}  // namespace tutti::infer
