// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Bodies of products with weights in blocks, for every instruction set, and rows of x in the forms that they take.

#include <tutti/config.hpp>

#if TUTTI_BODIES

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_tiles.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/isa.hpp>
#include <tutti/exec/isa/bytes.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cpu/gemm.hpp>
#include <tutti/kernel/cpu/swiglu.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tutti::kernel::cpu {

/// Rows rounded to int8 in blocks. Of blocks of 32, each `copies` times: a scale, less the sum of the integers, and an
/// eighth (the share of a lane) of scale times sum; of blocks of 256: a scale each and the sums of sixteen integers.
struct BlockRounding {
  std::int8_t* q = nullptr;
  float* scales = nullptr;
  std::int32_t* minus_totals = nullptr;
  float* eighths_of_sums = nullptr;
  std::int16_t* sums = nullptr;
  int copies = 1;

  /// From row r on.
  BlockRounding row(std::int64_t r, std::int64_t in, int block) const noexcept {
    std::int64_t const first = r * (in / block);
    std::int64_t const values = copies * first;
    if (block == 32) return {q + r * in, scales + values, minus_totals + values, eighths_of_sums + values, {}, copies};
    return {q + r * in, scales + first, nullptr, nullptr, sums + 16 * first};
  }
};
/// In the forms that some weights ask for, the others null.
struct BlockRoundings {
  BlockRounding by_32, by_256;
};
/// Many rows rounded to int8: of each block of 32 a scale, of each sixteen integers the sum. For one weight, of each
/// group of codes with a scale of its own: the integer that a product starts from, and scale times sum.
struct RoundedRows {
  std::int8_t* q = nullptr;
  float* scales = nullptr;
  std::int16_t* sums = nullptr;
  std::int32_t* starts = nullptr;
  float* scaled_sums = nullptr;
};

}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY <tutti/kernel/cpu/block_dot.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#define TUTTI_ISA_BODY <tutti/kernel/cpu/block_product.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#define TUTTI_ISA_BODY <tutti/kernel/cpu/block_many.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

namespace detail {

/// Errors: shape.
template <class = void>
void check_block_matrix(BlockMatrix const& w, std::int64_t rows, char const* operation) {
  if (rows < 0 || w.out < 0)
    throw Error(ErrorKind::shape, operation, concat(rows, " rows by ", w.out, " rows of weights: a size is negative"));
  row_bytes(w.type, w.in);
  if (w.tiled && (!has_tiles(w.type) || w.out % 32 != 0))
    throw Error(ErrorKind::shape, operation,
                concat("weights of ", w.out, " rows in ", name(w.type),
                       " are not in tiles. Make tiles of a type that has them, of a multiple of 32 rows"));
}

inline void round_rows(exec::Isa isa, std::int64_t rows, std::int64_t in, float const* x, std::int64_t x_stride,
                       BlockRoundings const& to) {
  TUTTI_DISPATCH_ALL(isa, round_rows(rows, in, x, x_stride, to));
}
inline void block_product_few(exec::Isa isa, BlockProduct const& p, std::int64_t begin, std::int64_t end,
                              BlockRoundings const& rounded) {
  TUTTI_DISPATCH_ALL(isa, block_product_few(p, begin, end, rounded));
}
inline void block_swiglu_few(exec::Isa isa, BlockSwiGlu const& p, std::int64_t begin, std::int64_t end,
                             BlockRoundings const& rounded) {
  TUTTI_DISPATCH_ALL(isa, block_swiglu_few(p, begin, end, rounded));
}
inline int rounding_copies(exec::Isa isa) { TUTTI_DISPATCH_ALL(isa, bytes::copies); }
inline bool rounds_many(exec::Isa isa, BlockType type) { TUTTI_DISPATCH_ALL(isa, rounds_many(type)); }
inline void round_many(exec::Isa isa, std::int64_t rows, std::int64_t in, float const* x, std::int64_t x_stride,
                       RoundedRows const& to, std::int64_t first) {
  TUTTI_DISPATCH_ALL(isa, round_many(rows, in, x, x_stride, to, first));
}
inline void block_product_many(exec::Isa isa, BlockProduct const& p, std::int64_t o, std::int64_t n,
                               RoundedRows const& x, float* wide, float* panel) {
  TUTTI_DISPATCH_ALL(isa, block_product_many(p, o, n, x, wide, panel));
}
inline bool tiles_weights(exec::Isa isa, BlockType type) { TUTTI_DISPATCH_ALL(isa, tiles_weights(type)); }
inline std::int64_t many_panel_floats(exec::Isa isa) { TUTTI_DISPATCH(isa, many_panel_floats()); }
inline std::int64_t many_wide_floats(exec::Isa isa) { TUTTI_DISPATCH(isa, many_wide_floats()); }
inline void widen_row(exec::Isa isa, BlockMatrix const& w, std::int64_t o, float* y) {
  TUTTI_DISPATCH(isa, widen_row(w, o, y));
}

}  // namespace detail
}  // namespace tutti::kernel::cpu

#endif
