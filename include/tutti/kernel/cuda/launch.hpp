// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Launches of the library's own kernels, which overlap: each begins with `begin_kernel` (ptx.hpp), so that its blocks
/// take their places while the kernel before it runs out.

#include <tutti/exec/cuda/launch.hpp>

#include <source_location>
#include <type_traits>

namespace tutti::kernel::cuda {

/// As tutti::cuda::launch.
template <class Args>
void launch_own(tutti::cuda::Stream const& stream, tutti::cuda::LaunchShape shape, void (*kernel)(Args),
                std::type_identity_t<Args> const& args, std::source_location where = std::source_location::current()) {
  shape.overlaps = true;
  tutti::cuda::launch(stream, shape, kernel, args, where);
}

}  // namespace tutti::kernel::cuda
