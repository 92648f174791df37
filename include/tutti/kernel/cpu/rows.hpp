// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sums and maxima of contiguous rows, for the bodies of other kernels.

#include <tutti/exec/context.hpp>
#include <tutti/exec/isa.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/rows.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu::detail {

/// Rows that are worth handing to another thread.
constexpr std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, columns));
}

/// Blocks into which a sum over rows is cut: by the shape alone, so that it does not depend on the threads.
constexpr std::int64_t row_blocks(std::int64_t rows) { return std::clamp<std::int64_t>(rows / 16, 1, 64); }

inline void add_blocks_part(exec::Isa isa, float* to, float const* partial, std::int64_t n, std::int64_t blocks,
                            std::int64_t stride, bool accumulate) {
  TUTTI_DISPATCH(isa, add_blocks(to, partial, n, blocks, stride, accumulate));
}

/// Sums over rows, cut into blocks by their number alone: f(begin, end, sums) adds those of rows [begin, end) onto the
/// `width` sums of a block. Returns the sums of row_blocks(rows) blocks, one after the other, in thread 0's scratch.
template <class F>
float* sum_row_blocks(exec::Context& context, std::int64_t rows, std::int64_t width, F&& f) {
  std::int64_t const blocks = row_blocks(rows), block = (rows + blocks - 1) / blocks;
  auto* const sums = static_cast<float*>(context.scratch(0, static_cast<std::size_t>(blocks * width) * sizeof(float)));
  context.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      float* const own = sums + index * width;
      std::fill(own, own + width, 0.0f);
      f(std::min(index * block, rows), std::min((index + 1) * block, rows), own);
    }
  });
  return sums;
}

}  // namespace tutti::kernel::cpu::detail
