// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a stage of a pipeline does in a step, as data: the words in which schedules are written.

#include <tutti/core/list.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::parallel {

enum class PipelineWork : unsigned char {
  forward,
  backward,  ///< of a schedule that splits it: up to the gradient of what came in alone
  weights,   ///< the rest of a backward pass that was split: gradients of parameters
};

/// What a stage does next, with one of its parts of the model: 0 is the one that comes first in it.
struct PipelineTask {
  PipelineWork work = PipelineWork::forward;
  int part = 0;
  std::int64_t micro_batch = 0;

  friend constexpr bool operator==(PipelineTask const&, PipelineTask const&) = default;
};

/// What all schedules are functions of. Part v of stage s is number v * stages + s of the model.
struct PipelineSize {
  int stages = 1;
  int virtual_stages = 1;  ///< parts of the model that each stage has
  std::int64_t micro_batches = 1;
};

/// `ahead` times `first`, then turns of one `first` and what `then` does, until there have been `all` of both.
/// `first(k)` and `then(k)` do work number k.
template <class First, class Then>
void in_turns(std::int64_t all, std::int64_t ahead, First&& first, Then&& then) {
  for (std::int64_t i = 0; i < all + ahead; ++i) {
    if (i < all) first(i);
    if (i >= ahead) then(i - ahead);
  }
}

/// Of how many micro-batches a stage keeps the activations of part `part` at once, at most: from the forward pass to
/// the end of the backward pass.
inline std::int64_t kept_micro_batches(List<PipelineTask> const& tasks, int part = 0) {
  bool splits = false;
  for (PipelineTask const& task : tasks) splits = splits || task.work == PipelineWork::weights;
  std::int64_t kept = 0, most = 0;
  for (PipelineTask const& task : tasks) {
    if (task.part != part) continue;
    if (task.work == PipelineWork::forward) most = std::max(most, ++kept);
    else if (!splits || task.work == PipelineWork::weights) --kept;
  }
  return most;
}

}  // namespace tutti::parallel
