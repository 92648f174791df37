// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The flags of programs that draw several tokens in one pass, and what they ask for.

#include <tutti/infer/decoder_fit.hpp>
#include <tutti/infer/draft_model.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/ngram_drafter.hpp>
#include <tutti/train/flags.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tutti::train {

struct SpeculationFlags {
  std::int64_t tokens = 0;  ///< drafts at once; 0: none, and as many as may be with a draft model
  std::string model;        ///< file or folder of the draft model; empty: drafts come from the text

  bool on() const noexcept { return tokens > 0 || !model.empty(); }
  std::int64_t most() const noexcept { return tokens > 0 ? tokens : infer::most_drafts; }
};

inline void add_speculation_flags(CLI::App& app, SpeculationFlags& flags, std::string const& prefix = "") {
  add_setting(app, "--speculate", flags.tokens, {0, infer::most_drafts},
              prefix +
                  "foretell up to N tokens by what followed the last words before, and read them in one pass; the "
                  "text stays the same. 0: none");
  app.add_option("--draft", flags.model,
                 prefix +
                     "smaller model with the same vocabulary that foretells the tokens, --speculate at once "
                     "(default 7): GGUF file, or folder with safetensors");
}

/// The draft model that the flags name. Errors: those of load_model and check_same_vocabulary.
inline infer::LoadedModel load_draft(SpeculationFlags const& flags, data::Tokenizer const& target) {
  infer::LoadedModel loaded = infer::load_model(flags.model);
  infer::check_same_vocabulary(target, loaded.tokenizer, flags.model);
  return loaded;
}

/// The drafter that the flags ask for, with its model.
class FlaggedSpeculation {
 public:
  /// Loads the draft model. Errors: of load_draft.
  FlaggedSpeculation(SpeculationFlags const& flags, data::Tokenizer const& target) : flags_(flags) {
    if (!flags.model.empty()) loaded_.emplace(load_draft(flags, target));
  }
  /// The memory that fit_decoder counts beside the model's.
  void add_to(infer::FitOptions& fit) const {
    if (!loaded_) return;
    fit.draft = &loaded_->model;
    fit.beside.weights += loaded_->model.bytes();
    fit.advice += ", or leave --draft out";
  }
  /// Borrows the context. `classes`: of the model; `options`: of its decoder. Errors: of Decoder.
  void start(exec::Context& context, std::int64_t classes, infer::DecoderOptions const& options,
             infer::SamplerOptions const& sampling, infer::SequenceBreakers breakers = {}) {
    if (!flags_.on()) return;
    if (!loaded_) {
      speculation_.emplace(ngrams_.emplace(), flags_.most());
      return;
    }
    decoder_.emplace(context, loaded_->model, options.of_draft(loaded_->model.max_tokens()));
    speculation_.emplace(model_.emplace(*decoder_, classes, sampling, 0, std::move(breakers)), flags_.most());
  }
  FlaggedSpeculation(FlaggedSpeculation const&) = delete;
  FlaggedSpeculation& operator=(FlaggedSpeculation const&) = delete;

  /// For infer::complete: null where nothing is asked for.
  infer::Speculation* get() noexcept { return speculation_ ? &*speculation_ : nullptr; }

 private:
  SpeculationFlags flags_;
  std::optional<infer::LoadedModel> loaded_;
  std::optional<infer::Decoder> decoder_;
  std::optional<infer::NgramDrafter> ngrams_;
  std::optional<infer::DraftModel> model_;
  std::optional<infer::Speculation> speculation_;
};

/// "; 31 of 40 drafts taken" for a line about an answer, or nothing.
inline std::string text_of(infer::SpeculationCounts const& counts) {
  return counts.drafted == 0 ? std::string() : concat("; ", counts.accepted, " of ", counts.drafted, " drafts taken");
}

}  // namespace tutti::train
