// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The training step of a model that is chosen while the program runs.

#include <tutti/train/model_choice.hpp>
#include <tutti/train/train_step.hpp>
#include <tutti/train/validation.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

namespace tutti::train {

/// TrainStep of one of the library's models, on one rank: what its members do stands there.
template <class Device = Cpu>
class AnyTrainStep {
 public:
  using Context = typename Execution<Device>::Context;

  /// Errors: as TrainStep's.
  AnyTrainStep(Context& context, ModelConfig const& config, optim::AnyOptimizer optimizer,
               TrainStepOptions const& options)
      : step_(std::visit(
            [&](auto const& model) -> std::unique_ptr<Step> {
              return std::make_unique<StepOf<decltype(detail::loss_of(model))>>(context, model, std::move(optimizer),
                                                                              options);
            },
            config)) {}

  graph::State& state() { return step_->state(); }
  std::int64_t workspace_bytes() { return step_->workspace_bytes(); }
  void initialise(std::uint64_t seed) { step_->initialise(seed); }
  StepResult operator()(InputBatch const& batch, double learning_rate) { return step_->run(batch, learning_rate); }
  /// As train::measure, by this process alone.
  Validation measure(data::ValidationLoader const& held_out, data::Tokenizer const* tokenizer, std::int64_t windows,
                     std::atomic<bool> const* stop = nullptr) {
    return step_->measure(held_out, tokenizer, windows, stop);
  }

 private:
  struct Step {
    Step() = default;
    Step(Step const&) = delete;
    Step& operator=(Step const&) = delete;
    virtual ~Step() = default;
    virtual graph::State& state() = 0;
    virtual std::int64_t workspace_bytes() = 0;
    virtual void initialise(std::uint64_t seed) = 0;
    virtual StepResult run(InputBatch const& batch, double learning_rate) = 0;
    virtual Validation measure(data::ValidationLoader const& held_out, data::Tokenizer const* tokenizer,
                               std::int64_t windows, std::atomic<bool> const* stop) = 0;
  };
  template <class Loss>
  struct StepOf final : Step {
    StepOf(Context& context, typename Loss::Config const& config, optim::AnyOptimizer optimizer,
           TrainStepOptions const& options)
        : step(context, config, std::move(optimizer), options) {}
    graph::State& state() override { return step.state(); }
    std::int64_t workspace_bytes() override { return step.workspace_bytes(); }
    void initialise(std::uint64_t seed) override { step.initialise(seed); }
    StepResult run(InputBatch const& batch, double learning_rate) override { return step(batch, learning_rate); }
    Validation measure(data::ValidationLoader const& held_out, data::Tokenizer const* tokenizer,
                       std::int64_t windows, std::atomic<bool> const* stop) override {
      return train::measure(step, held_out, tokenizer, windows, stop);
    }
    TrainStep<Loss, Device> step;
  };

  std::unique_ptr<Step> step_;
};

}  // namespace tutti::train
