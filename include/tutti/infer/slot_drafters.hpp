// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Who foretells the tokens of a service's answers: a drafter for each slot.

#include <tutti/infer/draft_model.hpp>
#include <tutti/infer/generation.hpp>
#include <tutti/infer/ngram_drafter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::infer {

struct ServiceDrafts {
  std::int64_t tokens = 0;                 ///< foretold at once for an answer; 0: none
  nn::StoredModel const* model = nullptr;  ///< who foretells; null: the answer's own text, by NgramDrafter
};

/// Not thread-safe.
class SlotDrafters {
 public:
  /// Borrows context and models. `options`: of the model's decoder. Errors: those of Speculation and Decoder.
  SlotDrafters(exec::Context& context, nn::StoredModel const& model, ServiceDrafts const& drafts,
               DecoderOptions const& options)
      : tokens_(drafts.tokens) {
    if (tokens_ == 0) return;
    if (drafts.model != nullptr) decoder_.emplace(context, *drafts.model, options.of_draft(drafts.model->max_tokens()));
    for (std::int32_t slot = 0; slot < options.slots; ++slot) {
      drafters_.push_back(std::make_unique<One>());
      if (decoder_) drafters_.back()->model.emplace(*decoder_, model.vocabulary(), SamplerOptions(), slot);
      start(*drafters_.back());
    }
  }

  /// A new answer: what is foretold, and drawn for that, depends on its request alone.
  void begin(std::size_t slot, Request const& request) {
    if (tokens_ == 0) return;
    if (decoder_) drafters_[slot]->model->restart(request.sampling, request.breakers);
    start(*drafters_[slot]);
  }
  /// Speculation::draft of the slot's answer; valid until its next call.
  std::span<Proposal const> draft(std::size_t slot, std::span<std::int32_t const> text, std::int32_t next,
                                  std::int64_t room) {
    return tokens_ == 0 ? std::span<Proposal const>() : drafters_[slot]->speculation->draft(text, next, room);
  }
  void verified(std::size_t slot, std::int64_t accepted) {
    if (tokens_ > 0) drafters_[slot]->speculation->verified(accepted);
  }

 private:
  struct One {
    NgramDrafter ngrams{};
    std::optional<DraftModel> model{};
    std::optional<Speculation> speculation{};
  };
  void start(One& one) const {
    one.ngrams = NgramDrafter();
    if (one.model) one.speculation.emplace(*one.model, tokens_);
    else one.speculation.emplace(one.ngrams, tokens_);
  }

  std::int64_t tokens_;
  std::optional<Decoder> decoder_;
  std::vector<std::unique_ptr<One>> drafters_;  // speculations point into them
};

}  // namespace tutti::infer
