// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The shepherd's model: the parameters that all agree on, their outer step, what they are worth, and their
/// checkpoints.

#include <tutti/federate/program.hpp>
#include <tutti/federate/shepherd_actions.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/parallel/outer_optimizer.hpp>
#include <tutti/train/any_train_step.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/state_files.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::federate {

class GlobalModel final : public OuterModel {
 public:
  /// With what `initial` sets, or drawn from the setup's seed where it is null: the same on every start.
  GlobalModel(train::Setup& setup, Program const& program, std::function<void(graph::State&)> const& initial)
      : setup_(setup),
        context_({.threads = setup.options.threads}),
        outer_context_({.threads = setup.options.threads}),
        step_(context_, program.model, optim::AnyOptimizer(optim::AdamW()),
              {.batch = setup.options.batch,
               .sequence = setup.options.sequence,
               .compute = setup.options.compute_dtype()}),
        fragment_(flat_order(step_.state(), program.fragments, fragments_)),
        outer_(outer_context_, fragments_.empty() ? std::vector{parallel::size(fragment_)} : fragments_,
               {.learning_rate = program.outer_learning_rate, .momentum = program.outer_momentum}) {
    if (!fragments_.empty())
      for (auto* const flat : {&parameters_, &momentum_})
        flat->resize(static_cast<std::size_t>(parallel::size(fragment_)));
    step_.initialise(static_cast<std::uint64_t>(setup.options.seed));
    if (initial) initial(step_.state());
    parallel::gather(step_.state(), fragment_, parameters());
  }

  /// Sizes of the fragments that are averaged at times of their own; empty: all at once.
  std::vector<std::int64_t> const& fragments() const noexcept { return fragments_; }
  std::span<float> parameters() override { return fragments_.empty() ? outer_.parameters(0) : parameters_; }
  std::span<float> momentum() override { return fragments_.empty() ? outer_.momentum(0) : momentum_; }
  void step(int fragment, std::span<float const> outer_gradient) override {
    if (fragments_.empty()) return outer_.step(0, outer_gradient);
    std::size_t first = 0;
    for (int f = 0; f < fragment; ++f) first += outer_.parameters(f).size();
    std::span<float> const at = outer_.parameters(fragment), velocity = outer_.momentum(fragment);
    std::span<float> const flat = std::span(parameters_).subspan(first, at.size());
    std::span<float> const flat_velocity = std::span(momentum_).subspan(first, at.size());
    std::copy(flat.begin(), flat.end(), at.begin());
    std::copy(flat_velocity.begin(), flat_velocity.end(), velocity.begin());
    outer_.step(fragment, outer_gradient);
    std::copy(at.begin(), at.end(), flat.begin());
    std::copy(velocity.begin(), velocity.end(), flat_velocity.begin());
  }

  /// Over as many windows of the held-out text as the setup says. Blocking. Requires: there is held-out text.
  train::Validation validate() {
    if (validation_.valid()) validation_.wait();
    parallel::scatter(parameters(), fragment_, step_.state());
    return measure();
  }
  /// The same of a copy of the parameters, beside whatever else happens: `validated` has the outcome. False, and
  /// nothing is done, while one is under way. Requires: there is held-out text.
  bool begin_validation(std::int64_t round) {
    if (validation_.valid() || stops_) return false;
    parallel::scatter(parameters(), fragment_, step_.state());
    validation_ = std::async(std::launch::async, [this, round] { return std::pair(round, measure()); });
    return true;
  }
  /// Its round and outcome, once; nothing while there is none. Blocking if it `waits`. Errors: the measurement's.
  std::optional<std::pair<std::int64_t, train::Validation>> validated(bool waits) {
    if (!validation_.valid()) return std::nullopt;
    if (!waits && validation_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    return validation_.get();
  }
  /// The one under way ends soon, with an outcome of which nobody hears; there will be no others.
  void stop_validation() noexcept { stops_ = true; }
  ~GlobalModel() override { stop_validation(); }
  /// A checkpoint like those of train_gpt2, with moments of zero: the workers have theirs. Returns its folder.
  /// `steps`: inner steps of all workers together. Errors: io.
  std::string save(std::int64_t steps) {
    train::CheckpointContents contents = train::contents_of(step_.state(), steps);
    std::vector<float> values;
    contents.load = [&](io::NamedTensor const& tensor) {  // the step's own may be measured at this moment
      values.assign(tensor.bytes() / sizeof(float), 0);
      auto const* from = parameters().data();
      for (parallel::Piece const& piece : fragment_) {
        if (piece.field == tensor.name) std::copy_n(from, piece.count, values.begin() + piece.first);
        from += piece.count;
      }
      return values.data();
    };
    for (io::NamedTensor& parameter : contents.parameters) parameter.data = nullptr;
    if (setup_.tokenizer) contents.tokenizer = setup_.tokenizer->text;
    contents.facts = train::checkpoint_facts(setup_, steps, 1);
    return train::save_checkpoint(setup_.options.out, contents, setup_.options.keep).string();
  }

 private:
  train::Validation measure() {
    std::vector<train::Validation> sets;
    auto const add = [&](data::ValidationLoader const& held_out) {
      sets.push_back(step_.measure(held_out, setup_.tokenizer ? &setup_.tokenizer->tokenizer : nullptr,
                                   setup_.validation_windows(held_out), &stops_));
    };
    add(*setup_.validation);
    for (data::ValidationLoader const& further : setup_.further_validation) add(further);
    return train::joined(sets);
  }

  train::Setup& setup_;
  exec::Context context_, outer_context_;  // for threads that measure and step at the same time
  train::AnyTrainStep<> step_;  // for its state and its evaluation: it never trains
  std::vector<std::int64_t> fragments_;
  parallel::Fragment fragment_;  // everything
  parallel::OuterOptimizer outer_;
  std::vector<float> parameters_, momentum_;  // with fragments: one behind another, as snapshots have them
  std::atomic<bool> stops_{false};
  std::future<std::pair<std::int64_t, train::Validation>> validation_;  // last: it uses the others
};

}  // namespace tutti::federate
