// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Values of an ONNX model, of which some axes have an extent that is known at the call alone.
///
/// A graph has fixed extents. Where an axis is to be the caller's, the graph is traced twice, with two extents of it:
/// what is equal in both is fixed, and what differs must be the axis, or a product of such axes (OnnxAxis).

#include <tutti/core/dtype.hpp>
#include <tutti/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::graph::onnx {

/// Of an axis, in the first and in the second graph.
struct Extent {
  std::int64_t first = 1, second = 1;

  constexpr bool fixed() const noexcept { return first == second; }
  constexpr bool is(std::int64_t number) const noexcept { return first == number && second == number; }
  friend constexpr bool operator==(Extent const&, Extent const&) = default;
};
using Extents = List<Extent>;

inline bool equal(Extents const& a, Extents const& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

/// A value of the model. ONNX broadcasts as NumPy does, so a broadcast is no node until something needs it: along
/// `spread` axes the tensor has an extent of 1 instead; a `lone` one has no axes, and all elements are its number.
struct Value {
  std::string name;
  DType dtype = DType::float32;
  Extents shape;
  List<bool> spread{};
  bool lone = false;

  int rank() const noexcept { return static_cast<int>(shape.size()); }
  bool whole() const noexcept {
    if (lone) return shape.empty();
    for (bool one : spread)
      if (one) return false;
    return true;
  }
};
using Values = List<Value>;

}  // namespace tutti::graph::onnx
