// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tokens to text while they are being generated.

#include <tutti/data/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::data {

/// Turns tokens into text as they come: holds back the bytes of a character until it is complete, so that what `push`
/// returns can be printed at once. All returned pieces together are exactly `decode` of all ids.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  /// `continues`: the tokens go on from a text, so a space that they begin with is one.
  explicit StreamDecoder(Tokenizer const& tokenizer, bool continues = false) noexcept
      : tokenizer_(&tokenizer), drop_space_(!continues && tokenizer.drops_first_space()) {}

  /// Errors: out_of_range.
  std::string push(std::int32_t id) {
    std::string const& bytes = tokenizer_->token_bytes(id);
    if (!tokenizer_->is_special(id)) held_ += bytes;
    if (drop_space_ && !held_.empty()) {
      if (held_[0] == ' ') held_.erase(0, 1);
      drop_space_ = false;
    }
    std::size_t ready = held_.size();
    for (std::size_t back = 1; back <= 3 && back <= held_.size(); ++back)
      if (Utf8Front const front = utf8_front(std::string_view(held_).substr(held_.size() - back)); front.truncated)
        ready = held_.size() - back;
    std::string text = held_.substr(0, ready);
    held_.erase(0, ready);
    return text;
  }
  /// What is left, complete or not.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  Tokenizer const* tokenizer_;
  std::string held_;
  bool drop_space_ = false;
};

}  // namespace tutti::data
