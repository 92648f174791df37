// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Every forward pass, then every backward pass.
/// Source  Huang et al. 2019 (arXiv 1811.06965)

#include <tutti/parallel/pipeline_task.hpp>

namespace tutti::parallel::schedules {

/// Activations  of all micro-batches
/// Bubble       (p - 1) / m of the time that the work takes
inline List<PipelineTask> gpipe(PipelineSize const& of, int) {
  List<PipelineTask> tasks;
  for (PipelineWork work : {PipelineWork::forward, PipelineWork::backward})
    for (std::int64_t m = 0; m < of.micro_batches; ++m) tasks.push_back({work, 0, m});
  return tasks;
}

}  // namespace tutti::parallel::schedules
