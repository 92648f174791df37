// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layer normalisation on the CPU.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/layer_norm.hpp>

#include <cstdint>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/layer_norm.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline void layer_norm_part(exec::Isa isa, LayerNorm const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, layer_norm_rows(args, begin, end));
}
inline void layer_norm_gradient_part(exec::Isa isa, LayerNormGradient const& args, std::int64_t begin, std::int64_t end,
                                     float* sums) {
  TUTTI_DISPATCH(isa, layer_norm_gradient_rows(args, begin, end, sums));
}

}  // namespace detail

/// See kernel::LayerNorm. Cost: 8 bytes of memory traffic per element; a row stays in L1 between its passes.
TUTTI_INLINE void layer_norm(exec::Context& context, LayerNorm const& args) {
  if (args.channels <= 0) return;
  context.parallel_for(args.rows, detail::row_grain(args.channels), [&](std::int64_t begin, std::int64_t end) {
    detail::layer_norm_part(context.isa(), args, begin, end);
  });
}

/// See kernel::LayerNormGradient. Rows are cut into blocks by the shape alone; each block sums its part of dgamma and
/// dbeta on its own, and the parts are added in order. Cost: 12 to 16 bytes of memory traffic per element.
TUTTI_INLINE void layer_norm_gradient(exec::Context& context, LayerNormGradient const& args) {
  std::int64_t const n = args.channels;
  if (n <= 0) return;
  if (args.dgamma == nullptr && args.dbeta == nullptr) {
    if (args.dx == nullptr) return;
    context.parallel_for(args.rows, detail::row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      detail::layer_norm_gradient_part(context.isa(), args, begin, end, nullptr);
    });
    return;
  }
  std::int64_t const blocks = detail::row_blocks(args.rows);
  float const* const partial = detail::sum_row_blocks(
      context, args.rows, 2 * n, [&](std::int64_t begin, std::int64_t end, float* sums) {
        detail::layer_norm_gradient_part(context.isa(), args, begin, end, sums);
      });
  context.parallel_for(n, 256, [&](std::int64_t begin, std::int64_t end) {
    if (args.dgamma != nullptr)
      detail::add_blocks_part(context.isa(), args.dgamma + begin, partial + begin, end - begin, blocks, 2 * n, false);
    if (args.dbeta != nullptr)
      detail::add_blocks_part(context.isa(), args.dbeta + begin, partial + n + begin, end - begin, blocks, 2 * n,
                              false);
  });
}

}  // namespace tutti::kernel::cpu

#endif
