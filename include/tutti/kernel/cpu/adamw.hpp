// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The optimizer's kernels on the CPU. Both are bound by memory: one pass, one sequential stream per operand and
/// thread.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/adamw.hpp>

#include <algorithm>
#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/adamw.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void adamw_part(exec::Isa isa, AdamW const& args, std::int64_t begin, std::int64_t end) {
  if (args.copy != nullptr && args.cleared != nullptr) TUTTI_DISPATCH(isa, adamw_range<true, true>(args, begin, end));
  if (args.copy != nullptr) TUTTI_DISPATCH(isa, adamw_range<true, false>(args, begin, end));
  if (args.cleared != nullptr) TUTTI_DISPATCH(isa, adamw_range<false, true>(args, begin, end));
  TUTTI_DISPATCH(isa, adamw_range<false, false>(args, begin, end));
}
inline double square_sum_part(exec::Isa isa, float const* x, std::int64_t size) {
  TUTTI_DISPATCH(isa, square_sum_block(x, size));
}

}  // namespace detail

/// See kernel::AdamW. Cost: 28 bytes of memory traffic per element; with a copy 2 more, and 2 where the processor reads
/// a line before it writes it; with the gradient cleared 4 more.
inline void adamw(exec::Context& context, AdamW const& args) {
  context.parallel_for(args.size, 4096, [&](std::int64_t begin, std::int64_t end) {
    detail::adamw_part(context.isa(), args, begin, end);
  });
}

/// See kernel::SquareSum. Cost: 4 bytes per element.
inline void square_sum(exec::Context& context, SquareSum const& args) {
  constexpr std::int64_t most_blocks = 2048;
  std::int64_t const block = std::max<std::int64_t>(8192, (args.size + most_blocks - 1) / most_blocks + 15) / 16 *
                             16;  // depends on the size alone
  std::int64_t const blocks = (args.size + block - 1) / block;
  double partial[most_blocks];
  context.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index)
      partial[index] =
          detail::square_sum_part(context.isa(), args.x + index * block, std::min(block, args.size - index * block));
  });
  double total = args.accumulate ? *args.out : 0.0;
  for (std::int64_t index = 0; index < blocks; ++index) total += partial[index];
  *args.out = total;
}

}  // namespace tutti::kernel::cpu
