// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sums and maxima of contiguous rows, for the bodies of other kernels.

#include <tutti/exec/isa.hpp>

#include <algorithm>
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

}  // namespace tutti::kernel::cpu::detail
