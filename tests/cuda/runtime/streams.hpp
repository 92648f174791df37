// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Work on streams that waits for other streams, for libraries that are emulated beside the runtime.

#include "emulated/runtime.hpp"

#include <functional>

namespace emulated {

/// Work that touches the memory of any device, and does not begin, nor does what is behind it, while `ready()` is
/// false. Both are called by the thread that plays the devices.
cudaError_t enqueue_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> run);

}  // namespace emulated
