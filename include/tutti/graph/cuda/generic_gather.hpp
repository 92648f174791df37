// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Kernels of gathers and scatters over the rows of a table; generic_steps.hpp launches them. An index outside the
/// table is reported in the error word.

#include <tutti/core/dtype.hpp>
#include <tutti/graph/cuda/generic_threads.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/kernel/cuda/error_word.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::graph::cuda {
namespace generic {

using graph::generic::added;
using graph::generic::index_at;
using graph::generic::integer_at;
using graph::generic::number_at;
using graph::generic::store_integer;
using graph::generic::store_number;

namespace detail {

struct Gather {
  std::byte const* table;
  std::byte* to;
  void const* index;
  std::int64_t rows, row_bytes, count;
  DType index_dtype;
  kernel::cuda::ErrorWord* word;
};
/// Reported once, by the thread of the row's first byte.
__device__ inline bool known_row(std::int64_t row, std::int64_t rows, std::int64_t position, bool reports,
                                 kernel::cuda::Mistake mistake, kernel::cuda::ErrorWord* word) {
  if (row >= 0 && row < rows) return true;
  constexpr std::int64_t most = INT32_MAX, least = INT32_MIN;
  if (reports)
    kernel::cuda::report(word, mistake, position,
                         static_cast<std::int32_t>(row > most    ? most
                                                   : row < least ? least
                                                                 : row));
  return false;
}
template <class = void>
__global__ void gather_rows(Gather const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i >= args.count * args.row_bytes) return;
  std::int64_t const position = i / args.row_bytes, byte = i - position * args.row_bytes;
  std::int64_t const row = index_at(args.index_dtype, args.index, position);
  bool const known = known_row(row, args.rows, position, byte == 0, kernel::cuda::Mistake::gathered, args.word);
  args.to[i] = known ? args.table[row * args.row_bytes + byte] : std::byte{0};
}

struct ScatterAdd {
  void* to;
  void const *updates, *index;
  std::int64_t rows, row, count;
  DType dtype, index_dtype;
  kernel::cuda::ErrorWord* word;
};
/// A thread owns a column of the rows, so every sum runs in the order of the indices.
template <class = void>
__global__ void scatter_columns(ScatterAdd const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const column = element_of_thread();
  if (column >= args.row) return;
  for (std::int64_t i = 0; i < args.count; ++i) {
    std::int64_t const row = index_at(args.index_dtype, args.index, i);
    if (!known_row(row, args.rows, i, column == 0, kernel::cuda::Mistake::scattered, args.word)) continue;
    std::int64_t const at = row * args.row + column, from = i * args.row + column;
    if (args.dtype == DType::float32)
      static_cast<float*>(args.to)[at] += static_cast<float const*>(args.updates)[from];
    else if (is_floating(args.dtype))
      store_number(args.dtype, args.to, at,
                   number_at(args.dtype, args.to, at) + number_at(args.dtype, args.updates, from));
    else
      store_integer(args.dtype, args.to, at,
                    added(integer_at(args.dtype, args.to, at), integer_at(args.dtype, args.updates, from)));
  }
}

}  // namespace detail
}  // namespace generic

}  // namespace tutti::graph::cuda
