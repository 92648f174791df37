// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Speculative decoding: somebody cheap foretells tokens, the model reads all of them in one pass, and keeps those that
/// it draws itself. Weights are read once for several tokens; what is drawn, and how often, stays as it is.
/// Source: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", 2023; Chen and others,
/// "Accelerating Large Language Model Decoding with Speculative Sampling", 2023.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/infer/sampler.hpp>
#include <tutti/kernel/block_product.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Tokens that are foretold at once, at most. With the token before them they are as many rows as quantised products
/// treat as they treat a single one; with more, a text would depend on what was foretold.
inline constexpr std::int64_t most_drafts = kernel::block_product_few_rows - 1;

/// What follows `text` (one token at least), up to `most` tokens (one at least); none where it does not know. The
/// distribution of a draft must be that of its draw, given what stands before it: whether a drawn token is proposed may
/// not depend on the token. Models: NgramDrafter, DraftModel.
template <class T>
concept Drafter = requires(T& drafter, std::span<std::int32_t const> text, std::int64_t most) {
  { drafter.draft(text, most) } -> std::convertible_to<std::vector<Proposal>>;
};

struct SpeculationCounts {
  std::int64_t drafted = 0, accepted = 0;
};

/// What became of drafts: how many were drawn, and the token behind them, or none where the answer has ended.
struct Verified {
  std::optional<std::int32_t> next{};
  std::int64_t accepted = 0;
};

/// A drafter at work on one text: asks for more where its drafts are taken, and for fewer where they are not.
class Speculation {
 public:
  /// Borrows the drafter. Errors: invalid_argument for fewer than one token at once, or more than most_drafts.
  template <Drafter D>
  explicit Speculation(D& drafter, std::int64_t most = most_drafts)
      : draft_(
            [&drafter](std::span<std::int32_t const> text, std::int64_t count) { return drafter.draft(text, count); }),
        most_(most),
        wanted_(most) {
    if (most < 1 || most > most_drafts)
      throw Error(ErrorKind::invalid_argument, "Speculation",
                  concat(most, " tokens to draft at once are asked for; there may be 1 to ", most_drafts));
  }

  /// Drafts behind a text and the token that follows it, `room` at most. Valid until the next call.
  std::span<Proposal const> draft(std::span<std::int32_t const> text, std::int32_t next, std::int64_t room) {
    text_.assign(text.begin(), text.end());
    text_.push_back(next);
    drafts_.clear();
    if (std::int64_t const count = std::min(room, wanted_); count > 0) drafts_ = draft_(text_, count);
    return drafts_;
  }
  /// How many of the last drafts were taken.
  void verified(std::int64_t accepted) noexcept {
    auto const drafted = static_cast<std::int64_t>(drafts_.size());
    if (drafted == 0) return;
    // A draft too many costs a row, one too few a pass.
    wanted_ = accepted == drafted ? std::min(most_, wanted_ + 2) : std::max<std::int64_t>(1, accepted + 1);
  }

 private:
  std::function<std::vector<Proposal>(std::span<std::int32_t const>, std::int64_t)> draft_;
  std::int64_t most_, wanted_;
  std::vector<std::int32_t> text_;
  std::vector<Proposal> drafts_;
};

}  // namespace tutti::infer
