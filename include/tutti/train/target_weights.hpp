// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The mean of a step over the targets that count, where micro-steps and ranks have unequal numbers of them.

#include <tutti/core/list.hpp>
#include <tutti/core/shared.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/tensor/view.hpp>
#include <tutti/train/step_options.hpp>

#include <algorithm>
#include <cstdint>

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

}  // namespace tutti::train
