// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The work of a step of heat between two exchanges of rows, the same for every contender.

#include "case.hpp"

#include <cstdint>

namespace tutti::bench {

/// Of real numbers only.
inline bool has_halo(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

/// Every inner point of the grid becomes the mean of its four neighbours; the edge of the grid keeps its values.
template <class T>
void step_of_heat(Case const& c, Operands const& o, int rank) {
  std::int64_t const columns = c.block, rows = c.grid_rows();
  T const* const from = reinterpret_cast<T const*>(o.from);
  T* const to = reinterpret_cast<T*>(o.to);
  for (std::int64_t i = 0; i < rows; ++i) {
    T const* const here = from + i * columns;
    T* const out = to + i * columns;
    bool const edge = (rank == 0 && i == 0) || (rank == c.ranks - 1 && i == rows - 1);
    for (std::int64_t j = 0; edge && j < columns; ++j) out[j] = here[j];
    if (edge) continue;
    out[0] = here[0];
    out[columns - 1] = here[columns - 1];
    for (std::int64_t j = 1; j < columns - 1; ++j)
      out[j] = T(0.25) * ((here[j - columns] + here[j + columns]) + (here[j - 1] + here[j + 1]));
  }
}

}  // namespace tutti::bench
