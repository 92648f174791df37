// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Steps that follow each other and are one launch on a device.

#include <tutti/graph/steps.hpp>

#include <cstddef>

namespace tutti::graph::cuda {

namespace detail {

/// How many steps from s on one launch makes: updates by the same scalars, or sums of squares each of which goes on
/// from the one before, which nobody else reads.
inline std::size_t joined_steps(StepList const& list, std::size_t s) {
  StepKind const kind = list.steps[s].kind;
  std::size_t end = s + 1;
  if (kind != StepKind::adamw && kind != StepKind::square_sum) return 1;
  for (; end < list.steps.size() && list.steps[end].kind == kind; ++end) {
    Step const &first = list.steps[s], &before = list.steps[end - 1], &next = list.steps[end];
    if (kind == StepKind::adamw) {
      bool same = true;
      for (std::size_t i = 0; i < 4; ++i)
        same = same && first.reads[i].buffer == next.reads[i].buffer && first.reads[i].offset == next.reads[i].offset;
      if (!same) break;
      continue;
    }
    Ref const &sum = before.writes[0], &base = next.reads[0];
    Buffer const& kept = list[sum.buffer];
    if (!base || base.buffer != sum.buffer || base.offset != sum.offset || kept.pool != Pool::arena ||
        kept.part_of >= 0 || kept.over >= 0)
      break;
    bool read_elsewhere = false;
    for (std::size_t other = 0; other < list.steps.size(); ++other)
      for (Ref const& ref : list.steps[other].reads)
        read_elsewhere = read_elsewhere || (other != end && ref && ref.buffer == sum.buffer);
    if (read_elsewhere && sum.buffer != next.writes[0].buffer) break;
  }
  return end - s;
}

}  // namespace detail

}  // namespace tutti::graph::cuda
