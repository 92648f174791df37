// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Layer normalisation on the CPU.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/layer_norm.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/layer_norm.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

/// Rows that are worth handing to another thread.
constexpr std::int64_t row_grain(std::int64_t columns) { return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, columns)); }

inline void layer_norm_part(exec::Isa isa, LayerNorm const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, layer_norm_rows(args, begin, end));
}
inline void layer_norm_gradient_part(exec::Isa isa, LayerNormGradient const& args, std::int64_t begin, std::int64_t end) {
  TUTTI_DISPATCH(isa, layer_norm_gradient_rows(args, begin, end));
}
inline void layer_norm_parameters_part(exec::Isa isa, LayerNormGradient const& args, std::int64_t first, std::int64_t last,
                                       std::int64_t begin, std::int64_t end, float* dgamma, float* dbeta) {
  TUTTI_DISPATCH(isa, layer_norm_parameter_gradients(args, first, last, begin, end, dgamma, dbeta));
}

/// Columns in chunks of one cache line or more; where those are too few for many threads, rows in blocks as well, whose
/// sums are added in order. Chunks and blocks depend on the shape alone.
inline void layer_norm_parameters(exec::Context& context, LayerNormGradient const& args) {
  constexpr std::int64_t chunk = 64;
  constexpr std::int64_t room = 4096;
  std::int64_t const n = args.channels;
  std::int64_t const chunks = (n + chunk - 1) / chunk;
  std::int64_t const blocks = std::max<std::int64_t>(1, std::min(room / (2 * n), args.rows / 256));
  std::int64_t const block = (args.rows + blocks - 1) / blocks;
  float partial[room];
  context.parallel_for(chunks * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      std::int64_t const index = task / chunks;
      std::int64_t const first = task % chunks * chunk;
      float* dgamma = args.dgamma;
      float* dbeta = args.dbeta;
      if (blocks > 1) {
        dgamma = partial + index * 2 * n;
        dbeta = dgamma + n;
      }
      layer_norm_parameters_part(context.isa(), args, first, std::min(first + chunk, n), std::min(index * block, args.rows),
                                 std::min((index + 1) * block, args.rows), dgamma, dbeta);
    }
  });
  if (blocks == 1) return;
  for (std::int64_t column = 0; column < n; ++column) {
    float gamma = 0, beta = 0;
    for (std::int64_t index = 0; index < blocks; ++index) {
      gamma += partial[index * 2 * n + column];
      beta += partial[(index * 2 + 1) * n + column];
    }
    if (args.dgamma != nullptr) args.dgamma[column] = gamma;
    if (args.dbeta != nullptr) args.dbeta[column] = beta;
  }
}

}  // namespace detail

/// See kernel::LayerNorm. Cost: 8 bytes of memory traffic per element; a row stays in L1 between its passes.
inline void layer_norm(exec::Context& context, LayerNorm const& args) {
  if (args.channels <= 0) return;
  context.parallel_for(args.rows, detail::row_grain(args.channels), [&](std::int64_t begin, std::int64_t end) {
    detail::layer_norm_part(context.isa(), args, begin, end);
  });
}

/// See kernel::LayerNormGradient. dgamma and dbeta first: dx may overwrite dy.
inline void layer_norm_gradient(exec::Context& context, LayerNormGradient const& args) {
  if (args.channels <= 0) return;
  if (args.dgamma != nullptr || args.dbeta != nullptr) detail::layer_norm_parameters(context, args);
  if (args.dx == nullptr) return;
  context.parallel_for(args.rows, detail::row_grain(args.channels), [&](std::int64_t begin, std::int64_t end) {
    detail::layer_norm_gradient_part(context.isa(), args, begin, end);
  });
}

}  // namespace tutti::kernel::cpu
