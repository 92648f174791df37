// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What devices want otherwise than processors: the working memory of the language-model head, and gradients of biases
/// from the products that read the same rows.

#include <tutti/core/list.hpp>
#include <tutti/graph/rewrite.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/cross_entropy.hpp>

#include <cstdint>
#include <utility>

namespace tutti::graph::lowering {

/// A bias' gradient sums the rows that the product for its weight's gradient multiplies: the two become one step, so
/// that rows which products round anyway are stored in bfloat16. The sums are float32, whatever the rows are stored in.
class BiasGradients {
 public:
  explicit BiasGradients(StepList& list) : at_(list) {}

  void run() {
    for (std::int32_t s = 0; s < at_.size(); ++s) {
      if (at_.dead(s) || at_.step(s).kind != StepKind::column_sum) continue;
      List<std::int32_t> const readers = at_.readers(at_.step(s).reads[0].buffer);
      for (std::int32_t const p : readers)
        if (reads_rows(p, at_.step(s).reads[0]) && (s > p || at_.may_sink(s, p))) {
          merge(p, s);
          break;
        }
    }
    at_.compact();
  }

 private:
  /// Whether `p` is c = rows^T b and nothing else.
  bool reads_rows(std::int32_t p, Ref const& rows) {
    Step const& step = at_.step(p);
    if (step.kind != StepKind::gemm || step.gelu || step.product == DType::float64) return false;
    Ref const &a = step.reads[0], &c = step.writes[0];
    if (step.reads[2] || step.reads[4] || step.writes.size() > 2 || (step.writes.size() == 2 && step.writes[1]))
      return false;
    return a.buffer == rows.buffer && a.offset == rows.offset && a.dtype == DType::float32 &&
           rows.dtype == DType::float32 && c.dtype == DType::float32 && c.shape.rank() == 2 && c.shape.size() > 0 &&
           a.shape == Shape{rows.shape[1], rows.shape[0]} && a.strides[0] == 1 && a.strides[1] == rows.shape[1] &&
           step.reads[1].dtype == DType::float32 && step.reads[1].contiguous();
  }
  void merge(std::int32_t p, std::int32_t s) {
    Ref const sums = at_.step(s).writes[0];
    at_.detach(s);
    at_.kill(s);
    at_.detach(p);
    at_.step(p).writes.resize(3);
    at_.step(p).writes[2] = sums;
    at_.attach(p);
  }

  Rewriter at_;
};

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
