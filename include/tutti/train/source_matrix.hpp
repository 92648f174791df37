// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Matrices that are made of parts of a stored model's tensors, read row after row.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/nn/stored_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::train {

/// Rows of a tensor of a source; without one, rows of zeros.
struct SourceRows {
  nn::StoredTensor const* tensor = nullptr;
  std::int64_t first = 0, count = 0;
  bool turned = false;  ///< they are columns of what lies in the file
  /// Rows of heads of so many are put in the order of the other pairing: `halves` says the one that they get.
  std::int64_t head = 0;
  bool halves = false;
};
/// A matrix that is to be written or learned, from parts of the source below one another. A vector has one column.
struct SourceMatrix {
  std::int64_t columns = 1;
  std::vector<SourceRows> parts;

  std::int64_t rows() const noexcept {
    std::int64_t all = 0;
    for (SourceRows const& part : parts) all += part.count;
    return all;
  }
};

namespace detail {

inline void read_part(SourceRows const& part, std::int64_t columns, std::int64_t first, std::int64_t count, float* to) {
  if (part.tensor == nullptr) {
    std::fill_n(to, count * columns, 0.0f);
    return;
  }
  nn::StoredTensor const& tensor = *part.tensor;
  if (part.turned) {
    std::vector<float> line(static_cast<std::size_t>(count));
    for (std::int64_t column = 0; column < columns; ++column) {
      std::byte const* const from = tensor.data + column * row_bytes(tensor.type, tensor.columns) +
                                    (part.first + first) * block_bytes(tensor.type);
      dequantise(tensor.type, from, count, line.data());
      for (std::int64_t row = 0; row < count; ++row) to[row * columns + column] = line[static_cast<std::size_t>(row)];
    }
    return;
  }
  std::int64_t const bytes = row_bytes(tensor.type, columns);
  if (part.head == 0) return dequantise(tensor.type, tensor.data + (part.first + first) * bytes, count * columns, to);
  std::int64_t const half = part.head / 2;
  for (std::int64_t i = 0; i < count; ++i, to += columns) {
    std::int64_t const row = first + i, place = row % part.head;
    std::int64_t const from = part.halves ? place % half * 2 + place / half : place / 2 + place % 2 * half;
    dequantise(tensor.type, tensor.data + (part.first + row - place + from) * bytes, columns, to);
  }
}

}  // namespace detail

/// `count` rows from `first` on, in float32.
inline void read_rows(SourceMatrix const& matrix, std::int64_t first, std::int64_t count, float* to) {
  std::int64_t at = 0;
  for (SourceRows const& part : matrix.parts) {
    std::int64_t const begin = std::max(first, at), end = std::min(first + count, at + part.count);
    if (begin < end)
      detail::read_part(part, matrix.columns, begin - at, end - begin, to + (begin - first) * matrix.columns);
    at += part.count;
  }
}

}  // namespace tutti::train
