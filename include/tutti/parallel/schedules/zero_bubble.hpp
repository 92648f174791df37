// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Backward passes in two: no other stage waits for gradients of weights, which fill the time in which a stage would
/// wait.
/// Source  Qi et al. 2023 (arXiv 2401.10241), ZB-H1

#include <tutti/parallel/pipeline_task.hpp>

namespace tutti::parallel::schedules {

/// Activations  of min(m, p) micro-batches, as many on every stage as 1F1B has on the first one
/// Bubble       (p - 1) (f + b - w) / (m (f + b + w)) of the time that the work takes, where f, b, w are the times of a
///              forward pass, of the gradient of what came in and of those of weights, and m is at least p
inline List<PipelineTask> zero_bubble(PipelineSize const& of, int stage) {
  List<PipelineTask> tasks;
  std::int64_t const m = of.micro_batches, ahead = std::min<std::int64_t>(m, of.stages - stage - 1);
  std::int64_t weights = 0;
  auto const add = [&](PipelineWork work, std::int64_t micro) { tasks.push_back({work, 0, micro}); };
  in_turns(
      m, ahead, [&](std::int64_t k) { add(PipelineWork::forward, k); },
      [&](std::int64_t k) {
        add(PipelineWork::backward, k);
        if (k >= stage) add(PipelineWork::weights, weights++);
      });
  while (weights < m) add(PipelineWork::weights, weights++);
  return tasks;
}

}  // namespace tutti::parallel::schedules
