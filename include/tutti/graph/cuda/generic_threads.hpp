// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What kernels of a thread an element share: the number of the thread, the launch, and where an element of a strided
/// array lies.

#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::graph::cuda {

using kernel::cuda::Context;

namespace generic {
namespace detail {

/// A box and up to four strided arrays in it, walked in row-major order.
struct Walk {
  int rank = 0;
  std::int64_t extents[Shape::max_rank] = {};
  std::int64_t strides[4][Shape::max_rank] = {};

  explicit Walk(Shape const& shape) : rank(shape.rank()) {
    for (int axis = 0; axis < rank; ++axis) extents[axis] = shape[axis];
  }
  void array(int which, std::array<std::int64_t, Shape::max_rank> const& of) {
    for (int axis = 0; axis < rank; ++axis) strides[which][axis] = of[static_cast<std::size_t>(axis)];
  }
  __device__ std::int64_t offset(int which, std::int64_t position) const {
    std::int64_t result = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      result += position % extents[axis] * strides[which][axis];
      position /= extents[axis];
    }
    return result;
  }
};

/// The element number of this thread; threads beyond the last have none.
__device__ inline std::int64_t element_of_thread() { return std::int64_t{blockIdx.x} * 256 + threadIdx.x; }

template <class Args>
void for_each(Context& context, std::int64_t count, void (*kernel)(Args), Args const& args) {
  if (count > 0) kernel::cuda::detail::launch_blocks(context, (count + 255) / 256, 256, kernel, args);
}

}  // namespace detail
}  // namespace generic

}  // namespace tutti::graph::cuda
