// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The shepherd's GPT-2: the parameters that all agree on, their outer step, what they are worth, and their
/// checkpoints.

#include <tutti/federate/gpt2_program.hpp>
#include <tutti/federate/shepherd_actions.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_optimizer.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/state_files.hpp>
#include <tutti/train/train_step.hpp>
#include <tutti/train/validation.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace tutti::federate {

class Gpt2Global final : public OuterModel {
 public:
  /// With what `initial` sets, or drawn from the setup's seed where it is null: the same on every start.
  Gpt2Global(train::Setup& setup, Gpt2Program const& program, std::function<void(graph::State&)> const& initial)
      : setup_(setup),
        context_({.threads = setup.options.threads}),
        step_(context_, program.model, {},
              {.batch = setup.options.batch,
               .sequence = setup.options.sequence,
               .compute = setup.options.compute_dtype()}),
        fragment_(parallel::fragments_of(step_.state(), 1).front()),
        outer_(context_, {parallel::size(fragment_)},
               {.learning_rate = program.outer_learning_rate, .momentum = program.outer_momentum}) {
    step_.initialise(static_cast<std::uint64_t>(setup.options.seed));
    if (initial) initial(step_.state());
    parallel::gather(step_.state(), fragment_, outer_.parameters(0));
  }

  std::span<float> parameters() override { return outer_.parameters(0); }
  std::span<float> momentum() override { return outer_.momentum(0); }
  void step(std::span<float const> outer_gradient) override { outer_.step(0, outer_gradient); }

  /// Over as many windows of the held-out text as the setup says. Blocking. Requires: there is held-out text.
  train::Validation validate() {
    parallel::scatter(parameters(), fragment_, step_.state());
    return train::measure(step_, *setup_.validation, setup_.tokenizer ? &setup_.tokenizer->tokenizer : nullptr,
                          setup_.validation_windows());
  }
  /// A checkpoint like those of train_gpt2, with moments of zero: the workers have theirs. Returns its folder.
  /// `steps`: inner steps of all workers together. Errors: io.
  std::string save(std::int64_t steps) {
    parallel::scatter(parameters(), fragment_, step_.state());
    train::CheckpointContents contents = train::contents_of(step_.state(), steps);
    if (setup_.tokenizer) contents.tokenizer = setup_.tokenizer->text;
    contents.facts = train::checkpoint_facts(setup_, steps, 1);
    return train::save_checkpoint(setup_.options.out, contents, setup_.options.keep).string();
  }

 private:
  train::Setup& setup_;
  exec::Context context_;
  train::TrainStep<nn::Gpt2Loss> step_;  // for its state and its evaluation: it never trains
  parallel::Fragment fragment_;
  parallel::OuterOptimizer outer_;
};

}  // namespace tutti::federate
