// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Division`: how ranks share out the updates of their State.

#include <tutti/graph/ir.hpp>

namespace tutti::graph {

/// Whether ranks can share out this update, each making a section of it: AdamW's, which treats every element for itself
/// and writes where it reads. Another update is made whole, by every rank in memory of its own.
constexpr bool is_divisible(Graph const& graph, Update const& update) noexcept {
  return graph.op(update.value) == Op::result && graph.op(graph.operand(update.value, 0)) == Op::adamw;
}

/// This rank among those that share out updates.
struct Division {
  int rank = 0, ranks = 1;
  bool everybody = true;  ///< these are all the ranks that average their gradients
  /// Each has parameters of its own, into which the others' sections are gathered after the updates; of moments it has
  /// the sections that it updates. False: they have one copy of all together. Needs `everybody`.
  bool gathers = false;
};

}  // namespace tutti::graph
