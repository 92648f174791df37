// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What TrainStep tells of its gradients.

#include <tutti/train/gradient_statistics.hpp>
#include <tutti/train/train_step.hpp>

#include <cstdint>
#include <source_location>

namespace tutti::train {

template <class Loss, class Device>
GradientStatistics TrainStep<Loss, Device>::gradient_statistics(InputBatch const& batch, std::source_location where) {
  auto const weights = begin(batch, true, where);
  for (std::int64_t micro = 0; micro < options_.micro_steps; ++micro) {
    give(measures_[micro], batch, micro, weights, where);
    measures_[micro].run(where);
  }
  auto found = statistics_of(measures_.last(), measures_.last_list(), state_, parts_.along(graph::MeshAxis::tensor),
                             parallel_.tensor.get());
  if (!any_not_finite(found, parallel_)) return found;
  auto const whole = step_graph<Loss>(config_, options_, optimizer_, parts_, optim::Pass::whole, 1, StepWork::measures);
  found.not_finite +=
      find_origin(execution_, whole, state(), batch, options_.micro_steps, parallel_,
                  [&](graph::Executor& run, std::int64_t micro) { give(run, batch, micro, weights, where); });
  return found;
}

template <class Loss, class Device>
void TrainStep<Loss, Device>::plan_measures() {
  refuse_stages(options_, "have no statistics of gradients", std::source_location::current());
  if (options_.state_ranks > 1)
    throw Error(ErrorKind::unavailable, "TrainStep",
                "gradients of which ranks have parts have no statistics. Use one state rank");
  if (measures_.planned()) return;
  execution_.close();
  measures_.plan(false, [&](auto const& pass) { return compiled(traced(pass, StepWork::measures), false); });
}

}  // namespace tutti::train
