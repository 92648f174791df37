// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where the elements of a strided view lie, for iterators on a device.

#include <tutti/tensor/shape.hpp>
#include <tutti/tensor/view.hpp>

#include <cstdint>

namespace tutti::kernel::cuda {

/// From an element's number in row-major order to its distance from the view's first one. Axes that lie one behind the
/// other are one, so a contiguous view costs no division.
class ViewOffset {
 public:
  ViewOffset() = default;
  template <class T, class D>
  explicit ViewOffset(TensorView<T, D> const& view) {
    for (int axis = 0; axis < view.rank(); ++axis) {
      std::int64_t const extent = view.shape()[axis], stride = view.strides()[static_cast<std::size_t>(axis)];
      if (extent == 1) continue;
      if (rank_ > 0 && strides_[rank_ - 1] == extent * stride) {
        extents_[rank_ - 1] *= extent;
        strides_[rank_ - 1] = stride;
      } else {
        extents_[rank_] = extent;
        strides_[rank_++] = stride;
      }
    }
  }
#ifdef __CUDACC__
  __host__ __device__
#endif
  std::int64_t operator()(std::int64_t element) const {
    if (rank_ == 0) return element;  // of one element: the end lies behind it
    std::int64_t offset = 0;
    for (int axis = rank_ - 1; axis > 0; --axis) {
      offset += element % extents_[axis] * strides_[axis];
      element /= extents_[axis];
    }
    return offset + element * strides_[0];
  }

 private:
  int rank_ = 0;
  std::int64_t extents_[Shape::max_rank] = {}, strides_[Shape::max_rank] = {};
};

}  // namespace tutti::kernel::cuda
