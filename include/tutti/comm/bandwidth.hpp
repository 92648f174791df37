// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Bandwidths as nccl-tests define them. Algorithm bandwidth: the size of a call, the larger of a rank's two buffers,
/// over its time. Bus bandwidth: that times a factor, so that it compares with the speed of the links, for any number
/// of ranks.

#include <tutti/comm/collective.hpp>

namespace tutti::comm {

/// Bus bandwidth over algorithm bandwidth. Source   nccl-tests, which knows neither scans, whose factor here is 1, nor
/// all_reduce_contributions, which counts as the all-reduce whose place it takes.
constexpr double bus_factor(Kind kind, int ranks) noexcept {
  double const n = ranks;
  switch (kind) {
    case Kind::all_reduce: case Kind::all_reduce_contributions: return 2 * (n - 1) / n;
    case Kind::gather: case Kind::all_gather: case Kind::scatter: case Kind::reduce_scatter: case Kind::all_to_all:
    case Kind::gather_v: case Kind::all_gather_v: case Kind::scatter_v: case Kind::reduce_scatter_v:
    case Kind::all_to_all_v:
      return (n - 1) / n;
    case Kind::barrier: case Kind::broadcast: case Kind::reduce: case Kind::scan: case Kind::exscan: break;
  }
  return 1;
}

}  // namespace tutti::comm
