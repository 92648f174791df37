// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The elements of a view whose memory has gaps, one after another, for copies into containers.

#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace tutti::detail {

/// Walks a TensorView in row-major order by its strides: a forward iterator, for as long as the view is there.
template <class View, class T>
class RowMajorIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = std::remove_const_t<T>;
  using difference_type = std::int64_t;
  using pointer = T*;
  using reference = T&;

  RowMajorIterator() = default;
  /// At the first element, or behind the last one: at `element` size().
  RowMajorIterator(View const& view, std::int64_t element) noexcept : view_(&view), element_(element) {}

  T& operator*() const noexcept { return view_->data()[offset_]; }
  T* operator->() const noexcept { return view_->data() + offset_; }
  RowMajorIterator& operator++() noexcept {
    ++element_;
    for (int axis = view_->rank() - 1; axis >= 0; --axis) {
      auto const at = static_cast<std::size_t>(axis);
      std::int64_t const step = view_->strides()[at], extent = view_->shape()[axis];
      offset_ += step;
      if (++index_[at] < extent) break;
      offset_ -= step * extent;
      index_[at] = 0;
    }
    return *this;
  }
  RowMajorIterator operator++(int) noexcept {
    RowMajorIterator const before = *this;
    ++*this;
    return before;
  }
  bool operator==(RowMajorIterator const& other) const noexcept { return element_ == other.element_; }

 private:
  View const* view_ = nullptr;
  std::int64_t element_ = 0;
  std::int64_t offset_ = 0;
  std::array<std::int64_t, Shape::max_rank> index_{};
};

}  // namespace tutti::detail
