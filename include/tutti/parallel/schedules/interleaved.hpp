// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Each stage has several parts of the model, of fewer layers: what a stage waits for at the beginning and the end of a
/// step is that much shorter, and messages are that many more.
/// Source  Narayanan et al. 2021 (arXiv 2104.04473), section 2.2, as Megatron-LM orders it

#include <tutti/parallel/pipeline_task.hpp>

namespace tutti::parallel::schedules {

/// Requires     micro-batches that are a multiple of the stages
/// Activations  of at most (v + 1) p - 2 stage - 1 micro-batches in parts of a v-th of a stage
/// Bubble       (p - 1) / (m v) of the time that the work takes
inline List<PipelineTask> interleaved(PipelineSize const& of, int stage) {
  List<PipelineTask> tasks;
  std::int64_t const p = of.stages, v = of.virtual_stages, all = of.micro_batches * v;
  // Micro-batches go through the parts of a stage in groups of p; backward the last part comes first.
  auto const add = [&](PipelineWork work, std::int64_t k) {
    std::int64_t const in_group = k % (p * v), part = in_group / p;
    tasks.push_back({work, static_cast<int>(work == PipelineWork::forward ? part : v - 1 - part),
                     k / (p * v) * p + in_group % p});
  };
  in_turns(
      all, std::min(all, 2 * (p - stage - 1) + (v - 1) * p),
      [&](std::int64_t k) { add(PipelineWork::forward, k); },
      [&](std::int64_t k) { add(PipelineWork::backward, k); });
  return tasks;
}

}  // namespace tutti::parallel::schedules
