// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Parameters of which each rank has a part are gathered while the layer before is computed. What begins early is a
/// function of the program alone and so the same on every rank.

#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

/// An all_gather of what the State holds begins as soon as all that are on their way then have no more bytes than those
/// of one layer, and an all_gather_wait takes its place. The last pass before memory is planned: what is gathered has
/// memory from its beginning on.
inline void start_gathers_early(StepList& list) {
  struct Gather {
    std::int32_t at, begin;  // its place; from where on what it reads is final, then where it begins
    std::int64_t bytes;
    BufferId from;
    std::int64_t offset;
  };
  List<Gather> gathers;
  List<std::int32_t> written(list.buffers.size(), -1);  // by the buffer that brings the memory
  std::int64_t budget = 0, layer_bytes = 0;
  std::int32_t layer = -1, slots = slots_of(list);
  std::size_t of_layer = 0;  // the first gather of a layer, which ends where one is gathered again
  auto const again = [&](Gather const& gather) {
    return std::any_of(gathers.begin() + static_cast<std::ptrdiff_t>(of_layer), gathers.end(),
                       [&](Gather const& other) { return other.from == gather.from && other.offset == gather.offset; });
  };
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(list.steps.size()); ++s) {
    Step const& step = list.steps[static_cast<std::size_t>(s)];
    if (step.kind == StepKind::all_gather) {
      auto const [from, offset] = list.home(step.reads[0].buffer);
      BufferId const to = step.writes[0].buffer;
      if (list[from].pool == Pool::state && list[to].pool == Pool::arena && list.home(to).root == to) {
        Gather const gather{s, written[static_cast<std::size_t>(from)] + 1, step.writes[0].bytes(), from,
                            offset + step.reads[0].offset};
        if (step.layer != layer || again(gather)) of_layer = gathers.size(), layer_bytes = 0;
        gathers.push_back(gather);
        layer_bytes += gather.bytes;
        layer = step.layer;
        if (layer >= 0) budget = std::max(budget, layer_bytes);
      }
    }
    for (Ref const& ref : results_of(step))
      if (ref) written[static_cast<std::size_t>(list.home(ref.buffer).root)] = s;
  }
  std::size_t first = 0;  // of those on their way when a gather begins
  std::int64_t flying = 0;
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    flying += gathers[i].bytes;
    while (first <= i && flying > budget) flying -= gathers[first++].bytes;
    std::int32_t const room = first > i ? gathers[i].at : first == 0 ? 0 : gathers[first - 1].at + 1;
    gathers[i].begin = std::max({gathers[i].begin, room, i == 0 ? 0 : gathers[i - 1].begin});
  }

  List<Step> steps;
  std::size_t next = 0;
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(list.steps.size()); ++s) {
    for (; next < gathers.size() && gathers[next].begin <= s; ++next) {
      if (gathers[next].begin == gathers[next].at) continue;
      Step& early = list.steps[static_cast<std::size_t>(gathers[next].at)];
      early.slot = slots++;
      Step wait = wait_for(early, StepKind::all_gather_wait);
      steps.push_back(std::exchange(early, std::move(wait)));
    }
    steps.push_back(std::move(list.steps[static_cast<std::size_t>(s)]));
  }
  list.steps = std::move(steps);
  number_slots(list);
}

}  // namespace tutti::graph::lowering
