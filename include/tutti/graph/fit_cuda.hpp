// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What devices want otherwise than processors: the working memory of the language-model head.

#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cross_entropy.hpp>

#include <cstdint>

namespace tutti::graph::lowering {

/// Workspaces of the language-model head: larger chunks of rows.
inline void fit_workspaces(StepList& list) {
  for (Step& step : list.steps) {
    if (step.kind != StepKind::linear_cross_entropy) continue;
    std::int64_t const rows = step.reads[2].shape.size(), padded = step.reads[1].shape[0];
    auto const element = static_cast<std::int64_t>(size_of(step.reads[0].dtype));
    std::int64_t const chunk = kernel::linear_cross_entropy_device_chunk(rows, padded, element);
    std::int64_t const bytes = kernel::linear_cross_entropy_device_workspace(rows, padded, chunk, element);
    Ref& workspace = step.writes[4];
    workspace = contiguous_ref(workspace.buffer, 0, DType::float32, {(bytes + 3) / 4});
    list[workspace.buffer].bytes = workspace.bytes();
  }
}

}  // namespace tutti::graph::lowering
