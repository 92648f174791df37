// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The shared memory that a launch asks for, in a header of its own because only CUDA's compiler can read it: the
/// emulation brings another.

#include <cuda_runtime.h>

namespace tutti::cuda {

/// The running block's dynamic shared memory from its beginning, aligned to 128 bytes; as long as the launch says.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char tutti_dynamic_shared[];
  return reinterpret_cast<T*>(tutti_dynamic_shared);
}

}  // namespace tutti::cuda
