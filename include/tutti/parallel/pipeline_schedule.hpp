// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// In which order the stages of a pipeline work on a step's micro-batches. Each schedule is a function in schedules/,
/// the one home of what the trainer runs and the planner simulates.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/parallel/pipeline_task.hpp>
#include <tutti/parallel/schedules/gpipe.hpp>
#include <tutti/parallel/schedules/interleaved.hpp>
#include <tutti/parallel/schedules/one_forward_one_backward.hpp>
#include <tutti/parallel/schedules/zero_bubble.hpp>

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {
namespace parallel {

enum class PipelineSchedule : unsigned char { one_forward_one_backward, gpipe, interleaved, zero_bubble };

/// A rank's place in a pipeline.
struct PipelineLayout {
  int stages = 1;
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int virtual_stages = 1;  ///< parts of the model that each stage has; more than one are of `interleaved`
  List<std::int64_t> layers{};  ///< of each part; empty: equally many
  bool balanced = false;        ///< as stage_balance.hpp finds them, in the place of `layers`

  /// Of the whole model, one behind the other; of `stage` those whose number modulo `stages` it is.
  int parts() const noexcept { return stages * virtual_stages; }
  int part(int mine) const noexcept { return mine * stages + stage; }
};

/// The tasks of a stage in a step, in their order. Of each part and kind micro-batches come in ascending order, so that
/// sums of gradients do not depend on the schedule.
/// Errors: configuration, for counts below 1, a stage that there is not, and what a schedule cannot divide.
inline List<PipelineTask> pipeline_tasks(PipelineLayout const& layout, std::int64_t micro_batches,
                                         std::source_location where = std::source_location::current()) {
  auto const refuse = [&](std::string what) {
    throw Error(ErrorKind::configuration, "pipeline_tasks", std::move(what), where);
  };
  int const stages = layout.stages;
  if (stages < 1 || layout.stage < 0 || layout.stage >= stages || micro_batches < 1 || layout.virtual_stages < 1)
    refuse(concat("stage ", layout.stage, " of ", stages, " with ", micro_batches, " micro-batches and ",
                  layout.virtual_stages, " virtual stages cannot be: stages, virtual stages and micro-batches are at "
                  "least 1"));
  bool const interleaved = layout.schedule == PipelineSchedule::interleaved;
  if (interleaved && micro_batches % stages != 0)
    refuse(concat("the interleaved schedule takes micro-batches in groups of as many as there are stages, and ",
                  micro_batches, " are not a multiple of ", stages, ". Use ",
                  micro_batches > stages ? concat(micro_batches / stages * stages, " or ") : std::string(),
                  (micro_batches / stages + 1) * stages, " micro-batches"));
  if (!interleaved && layout.virtual_stages > 1)
    refuse(concat(layout.virtual_stages, " virtual stages of a stage are of the interleaved schedule alone. Use that, "
                  "or one"));
  PipelineSize const size{stages, layout.virtual_stages, micro_batches};
  switch (layout.schedule) {
    case PipelineSchedule::gpipe: return schedules::gpipe(size, layout.stage);
    case PipelineSchedule::interleaved: return schedules::interleaved(size, layout.stage);
    case PipelineSchedule::zero_bubble: return schedules::zero_bubble(size, layout.stage);
    case PipelineSchedule::one_forward_one_backward: break;
  }
  return schedules::one_forward_one_backward(size, layout.stage);
}

/// Whether a schedule has gradients of weights apart.
constexpr bool splits_backward(PipelineSchedule schedule) noexcept { return schedule == PipelineSchedule::zero_bubble; }

/// The share of a step's time in which a stage waits, if all parts of the model take equally long, messages no time,
/// and a forward pass as long as each half of a backward pass; of `zero_bubble` where micro-batches are not fewer than
/// stages.
inline double pipeline_bubble(PipelineLayout const& layout, std::int64_t micro_batches) noexcept {
  double const waits = layout.stages - 1;  // for so many passes of a part, where it does so many
  double const works = static_cast<double>(micro_batches) * layout.virtual_stages;
  return waits / (works * (splits_backward(layout.schedule) ? 3 : 1) + waits);
}

}  // namespace parallel

template <>
inline constexpr auto setting::spelling<parallel::PipelineSchedule> =
    std::array<std::string_view, 4>{"1f1b", "gpipe", "interleaved", "zero-bubble"};

}  // namespace tutti
