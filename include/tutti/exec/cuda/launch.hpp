// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Kernel launches without CUDA's own syntax, so that any compiler reads the library's headers.
///
/// A kernel is `__global__ void name(Args args)`, usually a template: one struct by value.

#include <tutti/exec/cuda/check.hpp>
#include <tutti/exec/cuda/dynamic_shared.hpp>
#include <tutti/exec/cuda/stream.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <source_location>
#include <type_traits>

namespace tutti::cuda {

struct LaunchShape {
  dim3 grid;                     ///< blocks
  dim3 block;                    ///< threads of each, at most 1024
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of each block; over 48 KiB is asked for as CUDA wants it
  dim3 cluster = dim3(1);        ///< blocks of a cluster (sm_90)
  /// Blocks may start while the kernel before this one on the stream runs: every thread of the kernel calls
  /// `wait_for_previous_kernel` (kernel/cuda/ptx.hpp) before it reads or writes what that one or those before it touch.
  /// Where the stream lets kernels overlap; elsewhere it changes nothing.
  bool overlaps = false;
};

/// Enqueues the kernel on the stream and returns. An empty grid enqueues nothing.
/// Errors: invalid_argument for shapes that the device cannot run; what broke the device earlier.
template <class Args>
void launch(Stream const& stream, LaunchShape const& shape, void (*kernel)(Args),
            std::type_identity_t<Args> const& args, std::source_location where = std::source_location::current()) {
  static_assert(std::is_trivially_copyable_v<Args>, "a kernel's arguments are copied as bytes");
  static_assert(sizeof(Args) <= 32764, "more than CUDA passes to a kernel");
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  CurrentDevice const current(stream.device(), where);
  constexpr std::size_t without_asking = std::size_t{48} << 10;
  if (shape.shared_bytes > without_asking)
    check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        "cudaFuncSetAttribute", where);
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (shape.cluster.x * shape.cluster.y * shape.cluster.z > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster.x;
    cluster.val.clusterDim.y = shape.cluster.y;
    cluster.val.clusterDim.z = shape.cluster.z;
  }
  if (stream.next_overlaps() && shape.overlaps) {
    cudaLaunchAttribute& overlap = attributes[count++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.native();
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, args), "cudaLaunchKernelEx", where);
}

}  // namespace tutti::cuda
