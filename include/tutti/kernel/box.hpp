// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Loop nests over strided operands, merged to the fewest axes: what elementwise chains, reductions and copies walk.

#include <tutti/tensor/shape.hpp>

#include <array>
#include <cstdint>

namespace tutti::kernel {

using Extents = std::array<std::int64_t, Shape::max_rank>;

/// A loop nest over operands that each have one stride per axis. Axes of extent 1 vanish; neighbours that every operand
/// walks as one become one. Rank at least 1 once merged, so there always is an innermost axis.
template <int MaxOperands>
struct Box {
  int rank = 0;
  int operands = 0;
  Extents extents{};
  std::array<Extents, MaxOperands> strides{};
  unsigned marks = 0;  ///< one bit an axis; axes that differ in it do not merge

  Box(Shape const& shape, int operand_count) : rank(shape.rank()), operands(operand_count) {
    for (int axis = 0; axis < rank; ++axis) extents[at(axis)] = shape[axis];
  }

  void merge() {
    int kept = 0;
    unsigned kept_marks = 0;
    for (int axis = 0; axis < rank; ++axis) {
      if (extents[at(axis)] == 1) continue;
      unsigned const mark = (marks >> axis) & 1u;
      if (kept > 0 && ((kept_marks >> (kept - 1)) & 1u) == mark && continues(kept - 1, axis)) {
        extents[at(kept - 1)] *= extents[at(axis)];
        for (int operand = 0; operand < operands; ++operand)
          strides[at(operand)][at(kept - 1)] = strides[at(operand)][at(axis)];
        continue;
      }
      extents[at(kept)] = extents[at(axis)];
      for (int operand = 0; operand < operands; ++operand)
        strides[at(operand)][at(kept)] = strides[at(operand)][at(axis)];
      kept_marks |= mark << kept;
      ++kept;
    }
    if (kept == 0) {
      extents[0] = 1;
      for (int operand = 0; operand < operands; ++operand) strides[at(operand)][0] = 0;
      kept = 1;
    }
    rank = kept;
    marks = kept_marks;
  }

  std::int64_t extent(int axis) const { return extents[at(axis)]; }
  std::int64_t stride(int operand, int axis) const { return strides[at(operand)][at(axis)]; }
  std::int64_t inner() const { return extents[at(rank - 1)]; }
  bool marked(int axis) const { return ((marks >> axis) & 1u) != 0; }

  /// Where an operand's row `row` starts: rows are the positions of all axes but the innermost, in row-major order.
  std::int64_t row_offset(int operand, std::int64_t row) const {
    std::int64_t offset = 0;
    for (int axis = rank - 2; axis >= 0; --axis) {
      std::int64_t const extent = extents[at(axis)];
      offset += row % extent * strides[at(operand)][at(axis)];
      row /= extent;
    }
    return offset;
  }

 private:
  static constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }
  bool continues(int outer, int inner) const {
    for (int operand = 0; operand < operands; ++operand)
      if (strides[at(operand)][at(outer)] != strides[at(operand)][at(inner)] * extents[at(inner)]) return false;
    return true;
  }
};

}  // namespace tutti::kernel
