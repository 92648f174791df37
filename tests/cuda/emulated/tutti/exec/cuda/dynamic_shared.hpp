// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The emulated twin of the library's header of this name: found first on the include path.

#include <cuda_runtime.h>

namespace tutti::cuda {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulated::dynamic_shared_memory());
}

}  // namespace tutti::cuda
