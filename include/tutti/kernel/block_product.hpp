// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of products with weights that are stored in blocks (BlockType), for inference: linear layers, the first
/// half of a SwiGLU layer, rows of an embedding table.

#include <tutti/core/block_type.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::kernel {

/// One weight: `out` rows of `in` numbers, stored in blocks, rows `row_bytes(type, in)` apart.
/// Requires  data aligned to 2 bytes, of F32 to 4. Nothing beyond its last row is read.
struct BlockMatrix {
  BlockType type = BlockType::f32;
  std::int64_t out = 0, in = 0;
  std::byte const* data = nullptr;
  bool tiled = false;  ///< rows, of which 32 divide `out`, lie in tiles (core/block_tiles.hpp): on processors alone
};

/// Rows up to which each byte of a weight is read once for all of them: the tokens of single sequences.
inline constexpr std::int64_t block_product_few_rows = 8;

/// Shapes    x (rows, in), y and residual (rows, out), their rows `..._stride` elements apart; bias (out)
/// Computes  y[r, o] = sum_i x[r, i] * w[o, i] (+ bias[o]) (+ residual[r, o]); null: without
/// Aliasing  residual may be y. y overlaps nothing else.
/// Numerics  float32. Quantised weights on processors: x is first rounded to int8, in blocks of 32 or, of at most
///           `block_product_few_rows` rows by weights that have those, of 256, with a scale each; sums within a block
///           (of many rows: within codes of one scale) are exact integers, the same on every ISA. More rows stay as
///           they are on the scalar ISA, and by codes of eight bits on all ISAs below avx512_bf16; on CUDA all do.
///           Weights in tiles, and a gate or up beside one in tiles, are multiplied as by many rows, by few as well: a
///           row of x has the same sums among any.
///           The order of sums depends on shapes, type and ISA, never on the number of threads or on values.
/// Range     NaN and infinity in x make what they take part in NaN or infinite.
/// Errors    shape: negative sizes; rows of the weight that do not fill whole blocks.
struct BlockProduct {
  std::int64_t rows = 0;
  float const* x = nullptr;
  std::int64_t x_stride = 0;
  BlockMatrix weight{};
  float const* bias = nullptr;
  float const* residual = nullptr;
  std::int64_t residual_stride = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

/// Shapes    x (rows, in), gate and up (out, in), y (rows, out)
/// Computes  y[r, o] = silu(x gate[o]) * (x up[o]), silu(v) = v / (1 + exp(-v)), and keeps no intermediate
/// Numerics  products as of BlockProduct, silu within 4 ulp. Gate and up may be of different types.
/// Errors    shape, also where gate and up have different shapes.
struct BlockSwiGlu {
  std::int64_t rows = 0;
  float const* x = nullptr;
  std::int64_t x_stride = 0;
  BlockMatrix gate{}, up{};
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

/// Shapes    tokens (rows), table (out, in), y (rows, in) contiguous
/// Computes  y[r, :] = row tokens[r] of the table; zeros for a token < 0 or >= out
/// Numerics  exactly what `dequantise` gives.
/// Errors    shape.
struct BlockRows {
  std::int64_t rows = 0;
  std::int32_t const* tokens = nullptr;
  BlockMatrix table{};
  float* y = nullptr;
};

}  // namespace tutti::kernel
