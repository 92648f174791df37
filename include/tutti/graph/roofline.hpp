// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The least time of a step on a machine, by the roofline model (Williams, Waterman, Patterson 2009).

#include <tutti/core/dtype.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>

namespace tutti::graph {

/// What a step must do: operations of its matrix products, and bytes of its operands, each read or written once.
struct StepCost {
  double flops = 0, bytes = 0;
};
/// Causal attention counts the scores at or below the diagonal; its gradient five products instead of two. Of other
/// steps the arithmetic is not counted.
inline StepCost cost_of(Step const& step) {
  StepCost cost;
  auto const moved = [](Ref const& ref) {  // a broadcast operand is read once
    return ref ? static_cast<double>(std::min(ref.bytes(), ref.span_bytes())) : 0.0;
  };
  auto const size = [](Ref const& ref) { return static_cast<double>(ref.shape.size()); };
  auto const last = [](Ref const& ref) { return static_cast<double>(ref.shape[ref.shape.rank() - 1]); };
  for (Ref const& ref : step.reads) cost.bytes += moved(ref);
  for (Ref const& ref : step.writes) cost.bytes += moved(ref);
  auto const scores = [&](Ref const& out) {
    return size(out) * static_cast<double>(out.shape[1] + 1);  // operations of one product
  };
  switch (step.kind) {
    case StepKind::gemm: cost.flops = 2 * size(step.writes[0]) * last(step.reads[0]); break;
    case StepKind::attention: cost.flops = 2 * scores(step.writes[0]); break;
    case StepKind::attention_gradient: cost.flops = 5 * scores(step.reads[0]); break;
    case StepKind::linear_cross_entropy: {
      double const one = 2 * size(step.reads[0]) * static_cast<double>(step.vocabulary);
      cost.flops = one * (1 + (step.writes[1] ? 1 : 0) + (step.writes[2] ? 1 : 0));
      cost.bytes -= moved(step.writes[4]);  // the workspace
      break;
    }
    // Moved between the two.
    case StepKind::all_reduce_start:
    case StepKind::all_reduce_wait:
    case StepKind::all_gather_wait:
    case StepKind::reduce_scatter_wait: cost.bytes = 0; break;
    case StepKind::all_gather:
    case StepKind::reduce_scatter:
      if (step.slot >= 0) cost.bytes = 0;
      break;
    default: break;
  }
  return cost;
}

/// What the machine can do at most, in operations and bytes a second; see kernel/cpu/peak.hpp. 0: not known.
struct Roofline {
  double float32 = 0, bfloat16 = 0, bytes = 0;

  /// Seconds that a step takes at least.
  double least(Step const& step, StepCost const& cost) const {
    double const rate = step.product == DType::bfloat16 ? bfloat16 : float32;
    return std::max(rate > 0 ? cost.flops / rate : 0, bytes > 0 ? cost.bytes / bytes : 0);
  }
};

}  // namespace tutti::graph
