// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// In which order the stages of a pipeline do forward and backward passes of a step's micro-batches, as data.
/// Source  Huang et al. 2019 (arXiv 1811.06965), GPipe; Narayanan et al. 2021 (arXiv 2104.04473), 1F1B and the bubble

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/setting.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti {
namespace parallel {

enum class PipelineSchedule : unsigned char {
  /// As soon as a stage can go back it does, and alternates from then on: a stage keeps the activations of at most
  /// min(micro-batches, stages - stage) micro-batches.
  one_forward_one_backward,
  /// Every forward pass, then every backward pass: a stage keeps the activations of all micro-batches.
  gpipe,
};

/// A rank's place in a pipeline.
struct PipelineLayout {
  int stages = 1;
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
};

/// What a stage does next.
struct PipelineTask {
  bool backward = false;
  std::int64_t micro_batch = 0;

  friend constexpr bool operator==(PipelineTask const&, PipelineTask const&) = default;
};

/// The tasks of stage `stage` in a step, in their order. Forward and backward passes take micro-batches in ascending
/// order, so that sums of gradients do not depend on the schedule.
/// Errors: configuration, for counts below 1 or a stage that there is not.
inline List<PipelineTask> pipeline_tasks(PipelineSchedule schedule, int stages, int stage, std::int64_t micro_batches,
                                         std::source_location where = std::source_location::current()) {
  if (stages < 1 || stage < 0 || stage >= stages || micro_batches < 1)
    throw Error(ErrorKind::configuration, "pipeline_tasks",
                concat("stage ", stage, " of ", stages, " with ", micro_batches,
                       " micro-batches cannot be: stages and micro-batches are at least 1"), where);
  List<PipelineTask> tasks;
  std::int64_t const ahead = schedule == PipelineSchedule::gpipe
                                 ? micro_batches
                                 : std::min<std::int64_t>(micro_batches, stages - stage);
  for (std::int64_t i = 0; i < micro_batches + ahead; ++i) {
    // `ahead` forward passes, then pairs, then the backward passes that are left.
    if (i < micro_batches) tasks.push_back({false, i});
    if (i + 1 >= ahead && i + 1 - ahead < micro_batches) tasks.push_back({true, i + 1 - ahead});
  }
  return tasks;
}

/// Of how many micro-batches these tasks keep activations at once, at most.
inline std::int64_t kept_micro_batches(List<PipelineTask> const& tasks) {
  std::int64_t kept = 0, most = 0;
  for (PipelineTask const& task : tasks) {
    kept += task.backward ? -1 : 1;
    most = std::max(most, kept);
  }
  return most;
}

/// The share of a step's time in which a stage waits, if all stages take equally long: of both schedules.
constexpr double pipeline_bubble(int stages, std::int64_t micro_batches) noexcept {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace parallel

template <>
inline constexpr auto setting::spelling<parallel::PipelineSchedule> =
    std::array<std::string_view, 2>{"1f1b", "gpipe"};

}  // namespace tutti
