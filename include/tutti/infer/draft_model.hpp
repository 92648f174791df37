// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A small model that foretells what a large one will draw.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/speculation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Errors    configuration, naming the first token that differs: drafts would mean something else to the model
inline void check_same_vocabulary(data::Tokenizer const& model, data::Tokenizer const& draft, std::string const& path) {
  auto const refuse = [&](std::string const& why) {
    throw Error(ErrorKind::configuration, "check_same_vocabulary",
                concat("'", path, "' cannot draft for this model: ", why,
                       ". Use a model with the same vocabulary, a smaller one of the same family"));
  };
  if (model.vocabulary() != draft.vocabulary())
    refuse(concat("it has ", draft.vocabulary(), " tokens, the model ", model.vocabulary()));
  for (std::int32_t id = 0; id < model.vocabulary(); ++id)
    if (model.token_bytes(id) != draft.token_bytes(id) || model.is_special(id) != draft.is_special(id))
      refuse(concat("token ", id, " is another one"));
}

/// Drafts are drawn by the options that the model's sampler has, from this one's logits; of a seed of its own, so that
/// what is drafted says nothing about the model's draws, and without mirostat and XTC, which are the model's alone. A
/// model of Drafter.
/// Cost      a token through the draft model for each draft; the prompt goes through it too
class DraftModel {
 public:
  /// Borrows the decoder, of whose slots it has one to itself. `vocabulary`: logits of the model that it drafts for.
  DraftModel(Decoder& decoder, std::int64_t vocabulary, SamplerOptions options, std::int32_t slot = 0,
             SequenceBreakers breakers = {})
      : sequence_(decoder, slot),
        classes_(static_cast<std::size_t>(std::min(vocabulary, decoder.vocabulary()))),
        sampler_(own(std::move(options)), std::move(breakers)) {}

  /// Draws as a new one would; what the cache holds is kept.
  void restart(SamplerOptions options, SequenceBreakers breakers = {}) {
    sampler_ = Sampler(own(std::move(options)), std::move(breakers));
  }

  /// None where the text does not fit in the draft model's cache, or has a token that it does not know. Ends behind a
  /// token of which the draft model itself is not sure.
  /// Errors: those of the sampler.
  std::vector<Proposal> draft(std::span<std::int32_t const> text, std::int64_t most) {
    std::vector<Proposal> drafts;
    auto const room = sequence_.capacity() - static_cast<std::int64_t>(text.size());
    if (room < 0) return drafts;
    for (std::int32_t const token : text)
      if (token >= sequence_.decoder().vocabulary()) return drafts;
    sampler_.observe_instead(text);
    std::span<float const> logits = sequence_.become(text);
    for (;;) {
      drafts.push_back(sampler_.propose(logits.first(classes_)));
      auto const count = static_cast<std::int64_t>(drafts.size());
      // How sure it is of a token is known only behind it: dropping the token itself would change how often it comes.
      if (count >= most || count > room || sure(drafts.back()) < 0.3) return drafts;
      logits = sequence_.append({&drafts.back().token, 1});
    }
  }

 private:
  static SamplerOptions own(SamplerOptions options) {
    options.seed = ~options.seed;
    options.mirostat = Mirostat::off;
    options.xtc_probability = 0;
    return options;
  }
  static double sure(Proposal const& proposal) {
    for (TokenProbability const& p : proposal.from)
      if (p.id == proposal.token) return p.probability;
    return 0;
  }

  Sequence sequence_;
  std::size_t classes_;
  Sampler sampler_;
};

}  // namespace tutti::infer
