// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The mean of a step over the targets that count, where micro-steps and ranks have unequal numbers of them.

#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/tensor/view.hpp>
#include <tutti/train/inputs.hpp>
#include <tutti/train/step_options.hpp>

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <string_view>

namespace tutti::train {

/// The scalar of a step's programs that multiplies the mean loss of a micro-step.
inline constexpr char const target_weight_name[] = "target_weight";

/// With TrainStepOptions::weigh_targets a factor for each micro-step, else nothing: the mean over micro-steps, and by
/// TrainStepOptions::weight over ranks, of (factor * mean over the targets of a micro-step that count) is the sum of
/// losses over all ranks' targets that count, divided by their number. Zero for a micro-step without such targets.
/// Shapes    targets (micro-steps * batch, sequence); targets of -1 do not count
/// Ranks     those of `port`, which share out the batch; none: this one alone. Blocking.
inline List<double> target_weights(TensorView<std::int32_t const> targets, TrainStepOptions const& options,
                                   Shared<comm::Port> const& port) {
  List<double> weights;
  if (!options.weigh_targets) return weights;
  double all = 0;
  std::int64_t const rows = options.batch;
  for (std::int64_t micro = 0; micro < options.micro_steps; ++micro) {
    auto const part = targets.slice(0, micro * rows, (micro + 1) * rows);
    auto const elements = part.elements();
    weights.push_back(static_cast<double>(
        std::count_if(elements.begin(), elements.end(), [](std::int32_t target) { return target >= 0; })));
    all += weights.back();
  }
  if (port) parallel::all_reduce(*port, {&all, 1}, comm::PortOp::sum);
  double const share = static_cast<double>(options.micro_steps) * (port ? port->size() : 1) / options.weight;
  for (double& weight : weights) weight = all > 0 ? weight * share / all : 0;
  return weights;
}

/// Of the batch's input "targets". Errors: invalid_argument, where it has none of int32 elements.
inline List<double> target_weights(InputBatch const& batch, TrainStepOptions const& options,
                                   Shared<comm::Port> const& port, std::source_location where) {
  if (!options.weigh_targets) return {};
  for (InputValues const& values : batch)
    if (values.name == std::string_view("targets") && values.dtype == DType::int32)
      return target_weights(TensorView(static_cast<std::int32_t const*>(values.elements), values.shape), options, port);
  throw Error(ErrorKind::invalid_argument, "TrainStep",
              "weigh_targets counts the targets of a batch, and the loss reads no int32 input 'targets'. Declare it, "
              "or leave the option out", where);
}

}  // namespace tutti::train
