// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Division`: how ranks on one node share the updates of their State.

namespace tutti::graph {

/// This rank among those that share the fields of the State.
struct Division {
  int rank = 0, ranks = 1;
  bool everybody = true;  ///< these are all the ranks that average their gradients
};

}  // namespace tutti::graph
