// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What tests of CUDA code share, on a device and on the emulated one: a context, arrays on the device.

#include <tutti/exec/cuda/memory.hpp>
#include <tutti/kernel/cuda/context.hpp>

#include <cstddef>
#include <vector>

namespace tutti::test {

/// Made once per program.
inline kernel::cuda::Context& cuda_context() {
  static kernel::cuda::Context context;
  return context;
}

/// An array on the context's device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T> const& values, kernel::cuda::Context& context = cuda_context())
      : OnDevice(values.size(), context) {
    cuda::copy_to_device(context_->stream(), memory_.data(), values.data(), values.size() * sizeof(T));
  }
  /// Contents undefined; poison where the device is emulated.
  explicit OnDevice(std::size_t count, kernel::cuda::Context& context = cuda_context())
      : context_(&context), count_(count), memory_(context.stream(), count * sizeof(T)) {}

  T* data() const { return static_cast<T*>(memory_.data()); }
  std::size_t size() const { return count_; }

  /// Waits for everything that was enqueued; throws what kernels found wrong.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    context_->wait();
    cuda::copy_to_host(context_->stream(), values.data(), memory_.data(), count_ * sizeof(T));
    context_->stream().wait();
    return values;
  }

 private:
  kernel::cuda::Context* context_;
  std::size_t count_;
  cuda::DeviceMemory memory_;
};

}  // namespace tutti::test
