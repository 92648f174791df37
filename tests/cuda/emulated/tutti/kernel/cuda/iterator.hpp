// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The emulated twin of the library's header of this name: found first on the include path. It has what CUB's twin asks
/// of an iterator; Thrust's algorithms are not emulated.

#include <tutti/exec/cuda/device.hpp>
#include <tutti/kernel/cuda/view_offset.hpp>
#include <tutti/tensor/view.hpp>

#include <cstdint>

namespace tutti {

template <class T>
struct DeviceIterator {
  T* data;
  kernel::cuda::ViewOffset offset;
  std::int64_t element;

  T& operator[](std::int64_t i) const { return data[offset(element + i)]; }
  T& operator*() const { return (*this)[0]; }
  friend std::int64_t operator-(DeviceIterator const& a, DeviceIterator const& b) { return a.element - b.element; }
};
template <class T>
DeviceIterator<T> device_iterator(TensorView<T, Cuda> const& view, std::int64_t element) {
  return {view.data(), kernel::cuda::ViewOffset(view), element};
}

}  // namespace tutti
