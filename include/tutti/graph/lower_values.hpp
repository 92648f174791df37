// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A node's result during lowering: a view until somebody needs its bytes. Broadcasts, transposes, slices and reshapes
/// cost nothing here; a stack of layers stays a list of slices, each with a life of its own.

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tutti::graph::lowering {

/// A node's result during lowering.
struct Value {
  enum class Kind : std::uint8_t { constant, view, stack };
  Kind kind = Kind::view;
  DType dtype = DType::float32;
  Shape shape;
  double number = 0;        ///< constant: every element
  Ref ref;                  ///< view
  List<Ref> parts;   ///< stack: one per index of the first axis

  bool is_constant() const noexcept { return kind == Kind::constant; }
  bool is_stack() const noexcept { return kind == Kind::stack; }
};
inline Value constant_value(DType dtype, Shape const& shape, double number) {
  return {Value::Kind::constant, dtype, shape, number, {}, {}};
}
inline Value view_value(Ref const& ref) { return {Value::Kind::view, ref.dtype, ref.shape, 0, ref, {}}; }

inline Shape without_first(Shape const& shape) { return Shape::of(shape.begin() + 1, shape.rank() - 1); }

/// Ref at `index` of the first axis.
inline Ref slice_ref(Ref const& ref, std::int64_t index) {
  Ref result = ref;
  result.offset += index * ref.strides[0] * static_cast<std::int64_t>(size_of(ref.dtype));
  result.shape = without_first(ref.shape);
  result.strides = {};
  for (int axis = 1; axis < ref.shape.rank(); ++axis) result.strides[at(axis - 1)] = ref.strides[at(axis)];
  return result;
}

/// Several axes as one, if their strides allow; extents of one do not matter.
struct Axis {
  std::int64_t extent = 1, stride = 1;
};
inline std::optional<Axis> collapse(Ref const& ref, std::span<int const> axes) {
  Axis result;
  bool first = true;
  for (std::size_t i = axes.size(); i-- > 0;) {
    std::int64_t const extent = ref.shape[axes[i]], stride = ref.strides[at(axes[i])];
    if (extent == 0) return Axis{0, 1};
    if (extent == 1) continue;
    if (first)
      result = {extent, stride};
    else if (stride == result.extent * result.stride)
      result.extent *= extent;
    else
      return std::nullopt;
    first = false;
  }
  return result;
}

}  // namespace tutti::graph::lowering
