// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a loss may ask of the step that it is traced for, and how it is called.

#include <tutti/graph/builder.hpp>
#include <tutti/nn/dropout.hpp>
#include <tutti/train/inputs.hpp>

#include <source_location>
#include <string_view>

namespace tutti::train {

/// The last argument of a loss that takes one.
struct LossContext {
  graph::Builder& builder;
  bool training = true;  ///< or evaluation: another program, which updates nothing

  /// What dropouts draw from, and its parts as numbers () of int64: TrainStepOptions::seed, and how many updates were
  /// done before this step. The same on all ranks, and after resuming. In evaluation every dropout lets all pass.
  nn::StepRandom random(graph::Where where = graph::Where::current()) const { return nn::StepRandom(builder, where); }
  graph::Var seed(graph::Where where = graph::Where::current()) const {
    return builder.shared_scalar(nn::StepRandom::seed_name, DType::int64, where);
  }
  graph::Var step(graph::Where where = graph::Where::current()) const {
    return builder.shared_scalar(nn::StepRandom::step_name, DType::int64, where);
  }
  /// What an evaluation gives beside the loss, for TrainStep::output. Of training nothing is kept.
  void output(std::string_view name, graph::Var value, graph::Where where = graph::Where::current()) const {
    if (!training) builder.output(name, value, where);
  }
};

/// The loss, with its inputs declared in the graph: batches of so many rows. It is called with
///   (parameters, inputs) or (parameters, inputs, LossContext), where it declares inputs, else with
///   (parameters, tokens, targets) or (parameters, tokens, targets, LossContext).
template <class Loss>
graph::Var loss_of(LossContext const& context, auto const& parameters, auto inputs, std::int64_t rows,
                   std::source_location where = std::source_location::current()) {
  detail::for_each_input(inputs, [&](std::string_view name, Input& input) {
    graph::Var& value = input;
    value = context.builder.input(name, input.element, detail::batch_shape(input, rows), {}, where);
  });
  Loss const loss{};
  auto const& given = inputs;
  using Var = graph::Var;
  if constexpr (DeclaresInputs<Loss>) {
    if constexpr (requires { loss(parameters, given, context); }) return loss(parameters, given, context);
    else return loss(parameters, given);
  } else {
    if constexpr (requires { loss(parameters, Var(given.tokens), Var(given.targets), context); })
      return loss(parameters, Var(given.tokens), Var(given.targets), context);
    else return loss(parameters, Var(given.tokens), Var(given.targets));
  }
}

}  // namespace tutti::train
