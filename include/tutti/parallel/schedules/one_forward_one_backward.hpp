// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// As soon as a stage can go back it does, and alternates from then on.
/// Source  Narayanan et al. 2019 (PipeDream); Narayanan et al. 2021 (arXiv 2104.04473), where a step is flushed

#include <tutti/parallel/pipeline_task.hpp>

namespace tutti::parallel::schedules {

/// Activations  of min(m, p - stage) micro-batches
/// Bubble       (p - 1) / m of the time that the work takes
inline List<PipelineTask> one_forward_one_backward(PipelineSize const& of, int stage) {
  List<PipelineTask> tasks;
  std::int64_t const ahead = std::min<std::int64_t>(of.micro_batches, of.stages - stage - 1);
  in_turns(
      of.micro_batches, ahead, [&](std::int64_t m) { tasks.push_back({PipelineWork::forward, 0, m}); },
      [&](std::int64_t m) { tasks.push_back({PipelineWork::backward, 0, m}); });
  return tasks;
}

}  // namespace tutti::parallel::schedules
