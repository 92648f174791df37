// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// begin() and end() of views of device memory, which Thrust's algorithms take, and CUB's: elements in row-major order,
/// whatever the strides. For nvcc. The emulation has a twin of this header. Thrust's headers name ::cuda: do not say
/// `using namespace tutti` at global scope beside them.

#include <tutti/exec/cuda/device.hpp>
#include <tutti/kernel/cuda/view_offset.hpp>
#include <tutti/tensor/view.hpp>

#include <thrust/device_ptr.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cstdint>

namespace tutti {

/// What TensorView::begin and end return, at an element. An algorithm that writes needs a view of mutable elements
/// that does not overlap itself.
template <class T>
auto device_iterator(TensorView<T, Cuda> const& view, std::int64_t element) {
  return thrust::make_permutation_iterator(
      thrust::device_pointer_cast(view.data()),
      thrust::make_transform_iterator(thrust::make_counting_iterator(element), kernel::cuda::ViewOffset(view)));
}

}  // namespace tutti
