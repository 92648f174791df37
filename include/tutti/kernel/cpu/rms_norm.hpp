// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Root-mean-square normalisation on the CPU.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/rms_norm.hpp>

#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/rms_norm.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void rms_norm_part(exec::Isa isa, RmsNorm const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, rms_norm_rows(args, begin, end));
}
inline void rms_norm_gradient_part(exec::Isa isa, RmsNormGradient const& args, std::int64_t begin, std::int64_t end,
                                   float* sums) {
  TUTTI_DISPATCH(isa, rms_norm_gradient_rows(args, begin, end, sums));
}

}  // namespace detail

/// See kernel::RmsNorm. Cost: 8 bytes of memory traffic per element; a row stays in L1 between its passes.
inline void rms_norm(exec::Context& context, RmsNorm const& args) {
  if (args.channels <= 0) return;
  context.parallel_for(args.rows, detail::row_grain(args.channels), [&](std::int64_t begin, std::int64_t end) {
    detail::rms_norm_part(context.isa(), args, begin, end);
  });
}

/// See kernel::RmsNormGradient. Rows are cut into blocks by the shape alone; each block sums its part of dweight on its
/// own, and the parts are added in order. Cost: 12 to 16 bytes of memory traffic per element.
inline void rms_norm_gradient(exec::Context& context, RmsNormGradient const& args) {
  std::int64_t const n = args.channels;
  if (n <= 0) return;
  if (args.dweight == nullptr) {
    if (args.dx == nullptr) return;
    context.parallel_for(args.rows, detail::row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      detail::rms_norm_gradient_part(context.isa(), args, begin, end, nullptr);
    });
    return;
  }
  std::int64_t const blocks = detail::row_blocks(args.rows);
  float const* const partial = detail::sum_row_blocks(
      context, args.rows, n, [&](std::int64_t begin, std::int64_t end, float* sums) {
        detail::rms_norm_gradient_part(context.isa(), args, begin, end, sums);
      });
  context.parallel_for(n, 256, [&](std::int64_t begin, std::int64_t end) {
    detail::add_blocks_part(context.isa(), args.dweight + begin, partial + begin, end - begin, blocks, n,
                            args.accumulate);
  });
}

}  // namespace tutti::kernel::cpu
