// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Bodies of the steps that read and add to rows by index. Parallel over the team; every result is independent of the
/// number of threads.

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::graph::generic {

inline void check_indices(char const* operation, Ref const& indices, std::byte const* data, std::int64_t rows) {
  for (std::int64_t i = 0; i < indices.shape.size(); ++i) {
    std::int64_t const index = index_at(indices.dtype, data, i);
    if (index < 0 || index >= rows)
      throw Error(ErrorKind::out_of_range, operation,
                  "index " + std::to_string(index) + " at position " + std::to_string(i) + " is outside [0, " +
                      std::to_string(rows) + ")");
  }
}

inline void gather(exec::Context& context, Ref const& table, std::byte const* from, Ref const& indices,
                   std::byte const* index, std::byte* to) {
  std::int64_t const rows = table.shape[0], row = rows == 0 ? 0 : table.bytes() / rows, count = indices.shape.size();
  check_indices("gather", indices, index, rows);
  context.parallel_for(count, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(row, 1)),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i)
                           std::memcpy(to + i * row, from + integer_at(indices.dtype, index, i) * row,
                                       static_cast<std::size_t>(row));
                       });
}

/// Threads own columns of the rows, so every sum runs in the order of the indices.
inline void scatter_add(exec::Context& context, Ref const& base, Ref const& indices, std::byte const* index,
                        std::byte const* updates, std::byte* to) {
  std::int64_t const rows = base.shape[0], row = rows == 0 ? 0 : base.shape.size() / rows, count = indices.shape.size();
  check_indices("scatter_add", indices, index, rows);
  context.parallel_for(
      row, std::max<std::int64_t>(16, 16384 / std::max<std::int64_t>(count, 1)),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = 0; i < count; ++i) {
          std::int64_t const at = integer_at(indices.dtype, index, i) * row;
          if (base.dtype == DType::float32) {
            float* const sum = reinterpret_cast<float*>(to) + at;
            float const* const addend = reinterpret_cast<float const*>(updates) + i * row;
            for (std::int64_t k = begin; k < end; ++k) sum[k] += addend[k];
          } else if (is_floating(base.dtype)) {
            for (std::int64_t k = begin; k < end; ++k)
              store_number(base.dtype, to, at + k,
                           number_at(base.dtype, to, at + k) + number_at(base.dtype, updates, i * row + k));
          } else {
            for (std::int64_t k = begin; k < end; ++k)
              store_integer(base.dtype, to, at + k,
                            added(integer_at(base.dtype, to, at + k), integer_at(base.dtype, updates, i * row + k)));
          }
        }
      });
}

}  // namespace tutti::graph::generic
