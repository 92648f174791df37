// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Work on streams that waits for other streams, for libraries that are emulated beside the runtime.
///
/// It may be captured. Then `Deferred` is made anew whenever the graph is launched, in the order of the launches.

#include "emulated/runtime.hpp"

#include <functional>

namespace emulated {

struct Deferred {
  std::function<bool()> ready;
  std::function<void()> run;
};
/// Work that touches the memory of any device, and does not begin, nor does what is behind it, while `ready()` is
/// false. Both are called by the thread that plays the devices; `make` by whoever enqueues the work, or launches it.
cudaError_t enqueue_when(cudaStream_t stream, std::function<Deferred()> make);

}  // namespace emulated
