// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies between two layouts of one shape, on any device.

#include <tutti/tensor/view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::comm {

/// Copies between two layouts of one shape, run by run along the last axis.
template <class T, class D>
void copy_strided(TensorView<T, D> to, TensorView<T const, D> from) {
  Shape const& shape = to.shape();
  int const rank = shape.rank();
  if (to.size() == 0) return;
  if (to.contiguous() && from.contiguous()) {
    to.device().copy_within(to.data(), from.data(), static_cast<std::size_t>(to.size()) * sizeof(T));
    return;
  }
  std::int64_t const run = rank == 0 ? 1 : shape[rank - 1];
  auto const last = static_cast<std::size_t>(rank == 0 ? 0 : rank - 1);
  std::int64_t const to_step = rank == 0 ? 1 : to.strides()[last];
  std::int64_t const from_step = rank == 0 ? 1 : from.strides()[last];
  D const device = to.device();
  std::array<std::int64_t, Shape::max_rank> index{};
  for (;;) {
    std::int64_t to_at = 0;
    std::int64_t from_at = 0;
    for (std::size_t axis = 0; axis < last; ++axis) {
      to_at += index[axis] * to.strides()[axis];
      from_at += index[axis] * from.strides()[axis];
    }
    if (to_step == 1 && from_step == 1)
      device.copy_within(to.data() + to_at, from.data() + from_at, static_cast<std::size_t>(run) * sizeof(T));
    else if constexpr (D::host_accessible)
      for (std::int64_t i = 0; i < run; ++i) to.data()[to_at + i * to_step] = from.data()[from_at + i * from_step];
    else
      for (std::int64_t i = 0; i < run; ++i)
        device.copy_within(to.data() + to_at + i * to_step, from.data() + from_at + i * from_step, sizeof(T));
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      auto const a = static_cast<std::size_t>(axis);
      if (++index[a] < shape[axis]) break;
      index[a] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace tutti::comm
