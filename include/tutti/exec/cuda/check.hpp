// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Errors of CUDA as `Error`, and the device that a thread's calls go to.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>

#include <cuda_runtime.h>

#include <source_location>

namespace tutti::cuda {

constexpr ErrorKind kind_of(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorMemoryAllocation: return ErrorKind::out_of_memory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorNotSupported: return ErrorKind::unavailable;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle: return ErrorKind::invalid_argument;
    default: return ErrorKind::internal;
  }
}

/// Throws unless `error` is cudaSuccess, with CUDA's text and name as native text. `call` is the function of CUDA that
/// returned it; kernels fail late, so it may belong to earlier work of the same device.
template <class = void>
void check(cudaError_t error, char const* call, std::source_location where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the thread's memory of it; what broke the device stays
  throw Error(kind_of(error), "cuda", concat(call, " failed"), where)
      .with_native(concat(cudaGetErrorString(error), ", ", cudaGetErrorName(error)));
}

/// While it lives, the calls of this thread go to `device`. Everything of this folder brings its own.
class CurrentDevice {
 public:
  template <class = void>
  explicit CurrentDevice(int device, std::source_location where = std::source_location::current()) {
    check(cudaGetDevice(&before_), "cudaGetDevice", where);
    if (device == before_) return;
    check(cudaSetDevice(device), "cudaSetDevice", where);
    changed_ = true;
  }
  CurrentDevice(CurrentDevice const&) = delete;
  CurrentDevice& operator=(CurrentDevice const&) = delete;
  ~CurrentDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tutti::cuda
