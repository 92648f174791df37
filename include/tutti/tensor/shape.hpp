// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Shape of a tensor: up to eight extents, a literal type.

#include <tutti/core/concat.hpp>
#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>

namespace tutti {

/// Extents, outermost first. Extents are zero or more; the product of those above zero fits 63 bits, so that strides
/// and sizes never overflow. The rank is at most `max_rank`.
class Shape {
  // Clang needs it before the constructors that delegate to it in constant expressions.
  template <class = void>
  constexpr Shape(std::int64_t const* extents, std::int64_t rank, std::source_location where) {
    if (rank < 0) throw Error(ErrorKind::shape, "Shape", concat("rank ", rank, " is negative"), where);
    if (rank > max_rank)
      throw Error(ErrorKind::shape, "Shape", concat("rank ", rank, " is above the limit of 8"), where);
    std::int64_t product = 1;
    for (; rank_ < rank; ++rank_) {
      std::int64_t const extent = extents[rank_];
      if (extent < 0)
        throw Error(ErrorKind::shape, "Shape", concat("extent ", extent, " is negative"), where);
      extents_[static_cast<std::size_t>(rank_)] = extent;
      product = checked_multiply(product, extent == 0 ? 1 : extent, where);
    }
  }

 public:
  static constexpr int max_rank = 8;

  constexpr Shape() = default;
  template <std::integral First, std::integral... Rest>
  explicit Shape(First, Rest...) = delete;  // extents stand in braces: {2, 3}
  template <class = void>
  constexpr Shape(std::initializer_list<std::int64_t> extents,
                  std::source_location where = std::source_location::current())
      : Shape(extents.begin(), static_cast<std::int64_t>(extents.size()), where) {}
  /// From contiguous extents: a std::span, std::vector, std::array.
  template <class Extents>
    requires requires(Extents const& extents) {
      static_cast<std::int64_t const*>(extents.data());
      extents.size();
    }
  constexpr explicit Shape(Extents const& extents, std::source_location where = std::source_location::current())
      : Shape(extents.data(), static_cast<std::int64_t>(extents.size()), where) {}
  template <class = void>
  static constexpr Shape of(std::int64_t const* extents, std::int64_t rank,
                            std::source_location where = std::source_location::current()) {
    return Shape(extents, rank, where);
  }

  constexpr int rank() const noexcept { return rank_; }
  /// Number of elements; 1 for rank 0.
  constexpr std::int64_t size() const noexcept {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= extents_[static_cast<std::size_t>(axis)];
    return product;
  }
  constexpr std::int64_t operator[](int axis) const noexcept { return extents_[static_cast<std::size_t>(axis)]; }
  constexpr std::int64_t const* begin() const& noexcept { return extents_.data(); }
  constexpr std::int64_t const* end() const& noexcept { return extents_.data() + rank_; }
  // v(x.shape().begin(), x.shape().end()) would take the begin of one temporary and the end of another.
  constexpr std::int64_t const* begin() const&& = delete;
  constexpr std::int64_t const* end() const&& = delete;
  /// Elements that one step along each axis skips, for rows stored one after another.
  constexpr std::array<std::int64_t, max_rank> row_major_strides() const noexcept {
    std::array<std::int64_t, max_rank> strides{};
    std::int64_t step = 1;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      strides[static_cast<std::size_t>(axis)] = step;
      if (extents_[static_cast<std::size_t>(axis)] != 0) step *= extents_[static_cast<std::size_t>(axis)];
    }
    return strides;
  }
  /// The same shape with one extent replaced.
  template <class = void>
  constexpr Shape with(int axis, std::int64_t extent,
                       std::source_location where = std::source_location::current()) const {
    if (axis < 0 || axis >= rank_)
      throw Error(ErrorKind::out_of_range, "Shape::with",
                  concat("axis ", axis, " does not exist in a shape of rank ", rank_),
                  where);
    std::array<std::int64_t, max_rank> extents = extents_;
    extents[static_cast<std::size_t>(axis)] = extent;
    return Shape(extents.data(), rank_, where);
  }

  friend constexpr bool operator==(Shape const& a, Shape const& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (int axis = 0; axis < a.rank_; ++axis)
      if (a[axis] != b[axis]) return false;
    return true;
  }

 private:
  int rank_ = 0;
  std::array<std::int64_t, max_rank> extents_{};
};

/// "(4, 64, 768)"; "()" for rank 0, "(3,)" for rank 1, as in Python.
template <class = void>
constexpr std::string to_string(Shape const& shape) {
  std::string text;
  for (int axis = 0; axis < shape.rank(); ++axis) text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  return concat("(", text, (shape.rank() == 1 ? ",)" : ")"));
}

}  // namespace tutti
