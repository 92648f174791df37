// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Inner steps of the shepherd's model, on whatever trains here: an optimizer whose moments stay from round to round.

#include <tutti/data/loader.hpp>
#include <tutti/exec/memory_limit.hpp>
#include <tutti/exec/wait.hpp>
#include <tutti/federate/program.hpp>
#include <tutti/federate/trainer.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/parallel/fragments.hpp>
#include <tutti/tensor/tensor.hpp>
#include <tutti/train/any_train_step.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/machine.hpp>
#include <tutti/train/optimizer_choice.hpp>
#include <tutti/train/setup.hpp>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::federate {

/// Determinism  the same job on the same moments: the same parameters. Moments are those of the jobs before.
template <class Device>
class ModelTrainerOn final : public Trainer {
 public:
  /// Of the options: where the data are (`data`, and `tokenizer` beside them), `threads`, and `device`.
  explicit ModelTrainerOn(train::Options options) : local_(std::move(options)) {}

  std::string device() const override { return local_.device.text(); }

  double prepare(Facts const& facts) override {
    program_ = parse_program(facts.program);
    train::Options& o = program_.options;
    train::ModelFacts const model = std::visit([](auto const& config) { return train::facts_of(config); },
                                               program_.model);
    auto const require = [](bool fits) {
      if (!fits) throw Error(ErrorKind::format, "federate", "the shepherd's program and its facts differ");
    };
    require(o.batch == facts.batch && o.sequence == facts.sequence && program_.bits == facts.bits &&
            (program_.whole ? 1 : program_.fragments) == facts.fragment_count());
    open_data(model.vocabulary);
    std::int64_t const available = exec::available_memory();
    require_memory(model.parameters, facts, 0, available);
    machine_ = std::make_unique<train::Machine<Device>>(local_, train::NodePlace{});
    if (auto* const gpt2 = std::get_if<nn::Gpt2Config>(&program_.model)) {
      gpt2->dropout = o.dropout;
      gpt2->attention_dropout = o.attention_dropout;
    }
    step_ = std::make_unique<train::AnyTrainStep<Device>>(
        machine_->context(), program_.model, train::optimizer_of(o),
        train::TrainStepOptions{.batch = o.batch,
                                .sequence = o.sequence,
                                .clip = o.clip,
                                .compute = o.compute_dtype(),
                                .groups = optim::parse_groups(o.groups),
                                .seed = o.seed});
    std::vector<std::int64_t> fragments;
    fragment_ = flat_order(step_->state(), program_.fragments, fragments);
    if (program_.whole) fragments.clear();
    require(parallel::size(fragment_) == facts.parameters && fragments == facts.fragments);
    require_memory(model.parameters, facts, step_->workspace_bytes(), available);
    tokens_ = Tensor<std::int32_t>(Shape{o.batch, o.sequence});
    targets_ = Tensor<std::int32_t>(Shape{o.batch, o.sequence});
    schedule_ = {.kind = o.schedule,
                 .peak = o.learning_rate,
                 .warmup_steps = o.warmup,
                 .total_steps = program_.steps,
                 .final_fraction = o.final_fraction};
    return measure();
  }

  Trained train(Job const& job, std::span<float> parameters, JobControl& control) override {
    parallel::scatter(parameters, fragment_, step_->state());
    std::int64_t const batch = program_.options.batch, steps = job.steps(batch);
    Trained result;
    std::int64_t const began = exec::now_ns();
    for (std::int64_t k = 0; k < steps && !control.stop; ++k) {
      for (std::int64_t row = 0; row < batch; ++row)
        loader_->fill(job.sample(result.samples + row), 0, tokens_.slice(0, row, row + 1),
                      targets_.slice(0, row, row + 1));
      double const at = job.progress(k, steps) / static_cast<double>(program_.samples_per_step);
      train::StepResult const done = (*step_)({k, std::as_const(tokens_).view(), std::as_const(targets_).view()},
                                              schedule_(static_cast<std::int64_t>(at)));
      if (!std::isfinite(done.loss) || !std::isfinite(done.grad_norm))
        throw Error(ErrorKind::invalid_argument, "federate",
                    "the loss or the gradient's norm is not finite in round " + std::to_string(job.round) +
                        ": training has diverged. Lower --learning-rate");
      result.loss += static_cast<double>(done.loss);
      result.samples += batch;
      control.steps = k + 1;
    }
    result.seconds = static_cast<double>(exec::now_ns() - began) * 1e-9;
    result.loss /= static_cast<double>(std::max<std::int64_t>(result.samples / batch, 1));
    parallel::gather(step_->state(), fragment_, parameters);
    return result;
  }

 private:
  /// `vocabulary`: of the model; 0: not known.
  void open_data(std::int64_t vocabulary) {
    if (local_.data.empty())
      throw Error(ErrorKind::configuration, "federate",
                  "--data is needed: the training shards that the shepherd has too");
    train::detail::expand_data_folder(local_);
    data::TokenCorpus corpus = train::detail::said_of("--data", [&] { return data::TokenCorpus(local_.data); });
    std::string const hash = train::to_hex(hash_corpus(corpus));
    if (hash != program_.data_hash)
      throw Error(ErrorKind::configuration, "federate",
                  "--data " + local_.data + " has " + std::to_string(corpus.tokens()) + " tokens with hash " + hash +
                      ", the shepherd's has " + std::to_string(program_.data_tokens) + " with hash " +
                      program_.data_hash + ". Copy the shepherd's files here");
    if (!local_.tokenizer.empty() && !program_.tokenizer_hash.empty() &&
        train::detail::hash_text(io::read_file(local_.tokenizer)) != program_.tokenizer_hash)
      throw Error(ErrorKind::configuration, "federate",
                  "--tokenizer " + local_.tokenizer + " is not the shepherd's. Copy it here");
    if (vocabulary > 0) corpus.require_vocabulary(vocabulary);
    loader_.emplace(std::move(corpus), 1, program_.options.sequence, static_cast<std::uint64_t>(program_.options.seed));
  }
  /// Parameters, moments and gradients, what is held of the global model, what is sent, and what a step works in.
  void require_memory(double parameters, Facts const& facts, std::int64_t workspace, std::int64_t available) const {
    train::detail::require_memory(program_.options, 1, true,
                                  train::state_bytes_of_parameter(program_.options) * parameters,
                                  (facts.streams() ? 24 : 16) * parameters +
                                      2 * static_cast<double>(facts.gradient_bytes(0)) +
                                      static_cast<double>(workspace),
                                  available);
  }
  /// Steps a second, of steps whose outcome is thrown away.
  double measure() {
    auto const seed = static_cast<std::uint64_t>(program_.options.seed);
    step_->initialise(seed);
    std::int64_t began = 0;
    constexpr std::int64_t measured = 2;
    for (std::int64_t k = -1; k < measured; ++k) {  // the first one takes memory and fills caches
      if (k == 0) began = exec::now_ns();
      for (std::int64_t row = 0; row < program_.options.batch; ++row)
        loader_->fill(row, 0, tokens_.slice(0, row, row + 1), targets_.slice(0, row, row + 1));
      static_cast<void>((*step_)({0, std::as_const(tokens_).view(), std::as_const(targets_).view()}, 0));
    }
    double const took = static_cast<double>(std::max<std::int64_t>(exec::now_ns() - began, 1)) * 1e-9;
    step_->initialise(seed);
    return static_cast<double>(measured) / took;
  }

  train::Options local_;
  Program program_;
  std::optional<data::TrainLoader> loader_;
  std::unique_ptr<train::Machine<Device>> machine_;
  std::unique_ptr<train::AnyTrainStep<Device>> step_;
  parallel::Fragment fragment_;  // everything
  Tensor<std::int32_t> tokens_, targets_;
  optim::Schedule schedule_;
};

/// On this machine's processors.
using ModelTrainer = ModelTrainerOn<Cpu>;

}  // namespace tutti::federate
