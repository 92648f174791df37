// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Gradients of which each rank needs its part are summed while those of the layer before are computed. What waits
/// later is a function of the program alone and so the same on every rank.

#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

/// A reduce_scatter along the data axis is waited for where its result is first needed, by a reduce_scatter_wait, or
/// before: as soon as the operands of all that are on their way have more bytes than those of one layer. Before memory
/// is planned: an operand has memory until the wait.
inline void wait_late_for_scatters(StepList& list) {
  struct Scatter {
    std::size_t step;  // in the new list
    BufferId from, to;
    std::int64_t bytes;
  };
  auto const root = [&](Ref const& ref) { return list.home(ref.buffer).root; };
  auto const is_sum = [](Step const& step) {
    return step.kind == StepKind::reduce_scatter && step.mesh_axis == MeshAxis::data;
  };
  std::int64_t budget = 0, layer_bytes = 0, flying = 0;
  std::int32_t layer = -1, slots = slots_of(list);
  for (Step const& step : list.steps) {
    if (!is_sum(step) || step.layer < 0) continue;
    if (std::exchange(layer, step.layer) != step.layer) layer_bytes = 0;
    budget = std::max(budget, layer_bytes += step.reads[0].bytes());
  }

  List<Step> steps;
  List<Scatter> on_their_way;
  auto const wait = [&](Scatter const& scatter) {
    flying -= scatter.bytes;
    Step& begun = steps[scatter.step];
    if (scatter.step + 1 == steps.size()) return;  // nothing came in between
    begun.slot = slots++;
    Step end = wait_for(begun, StepKind::reduce_scatter_wait);
    end.reads.push_back(begun.reads[0]);
    steps.push_back(std::move(end));
  };
  auto const wait_where = [&](auto const& needed) {
    on_their_way.erase_if([&](Scatter const& scatter) {
      bool const now = needed(scatter);
      if (now) wait(scatter);
      return now;
    });
  };
  for (Step& step : list.steps) {
    wait_where([&](Scatter const& scatter) {
      auto const touches = [&](Ref const& ref) { return ref && root(ref) == scatter.to; };
      auto const changes = [&](Ref const& ref) { return ref && root(ref) == scatter.from; };
      return std::any_of(step.reads.begin(), step.reads.end(), touches) ||
             std::any_of(step.writes.begin(), step.writes.end(), touches) ||
             std::any_of(step.writes.begin(), step.writes.end(), changes);
    });
    bool const scatters = is_sum(step) && root(step.reads[0]) != root(step.writes[0]);
    steps.push_back(std::move(step));
    if (!scatters) continue;
    Step const& begun = steps.back();
    on_their_way.push_back({steps.size() - 1, root(begun.reads[0]), root(begun.writes[0]), begun.reads[0].bytes()});
    flying += begun.reads[0].bytes();
    wait_where([&](Scatter const&) { return flying > budget; });
  }
  wait_where([](Scatter const&) { return true; });
  list.steps = std::move(steps);
  number_slots(list);
}

}  // namespace tutti::graph::lowering
