// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Products of few rows with weights in blocks, and blocks as floats. Stamped per instruction set after gemm.inl and
/// block_dot.inl.

/// Rows of x in the forms that weights of these types ask for.
TUTTI_TARGET inline void round_rows(std::int64_t rows, std::int64_t in, float const* x, std::int64_t x_stride,
                                    BlockRoundings const& to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    if (to.by_32.q != nullptr) round_by_32(x + r * x_stride, in, to.by_32.row(r, in, 32));
    if (to.by_256.q != nullptr) round_by_256(x + r * x_stride, in, to.by_256.row(r, in, 256));
  }
}

/// tile[r * tile_columns + j] = row r of x times row o + j of w, j < n <= tile_columns.
template <class Block>
TUTTI_TARGET void block_tile(BlockMatrix const& w, std::int64_t o, int n, std::int64_t rows, float const* x,
                             std::int64_t x_stride, BlockRoundings const& rounded, float* tile) {
  constexpr int in_block = block_elements(Block::type);
  std::int64_t const count = w.in / in_block, row = count * static_cast<std::int64_t>(sizeof(Block));
  std::byte const* const from = w.data + o * row;
  int j = 0;
  if constexpr (in_block == 1) {
    auto const* const b = reinterpret_cast<decltype(Block::value) const*>(from);
    for (; j + 4 <= n; j += 4) dot_rows<Words::plain, 4>(rows, w.in, x, x_stride, b + j * w.in, w.in, tile + j);
    for (; j < n; ++j) dot_rows<Words::plain, 1>(rows, w.in, x, x_stride, b + j * w.in, w.in, tile + j);
  } else if constexpr (in_block == 32) {
    std::int64_t const fours = rows / 4 * 4;
    for (; j < n; ++j)
      for (std::int64_t r = 0; r < fours; r += 4)
        dots_by_32<Block, 4, 1>(from + j * row, row, count, rounded.by_32.row(r, w.in, 32), tile + r * tile_columns + j,
                                tile_columns);
    for (std::int64_t r = fours; r < rows; ++r) {
      BlockRounding const one = rounded.by_32.row(r, w.in, 32);
      float* const to = tile + r * tile_columns;
      for (j = 0; j + 4 <= n; j += 4) dots_by_32<Block, 1, 4>(from + j * row, row, count, one, to + j, 0);
      for (; j < n; ++j) dots_by_32<Block, 1, 1>(from + j * row, row, count, one, to + j, 0);
    }
  } else {
    for (; j < n; ++j) {
      std::int64_t r = 0;
      for (; r + 4 <= rows; r += 4)
        dots_by_256<Block, 4>(from + j * row, count, rounded.by_256.row(r, w.in, 256), tile + r * tile_columns + j,
                              tile_columns);
      for (; r < rows; ++r)
        dots_by_256<Block, 1>(from + j * row, count, rounded.by_256.row(r, w.in, 256), tile + r * tile_columns + j, 0);
    }
  }
}
inline void block_tile_of(BlockMatrix const& w, std::int64_t o, int n, std::int64_t rows, float const* x,
                          std::int64_t x_stride, BlockRoundings const& rounded, float* tile) {
  blocks::with_block(w.type,
                     [&](auto block) { block_tile<decltype(block)>(w, o, n, rows, x, x_stride, rounded, tile); });
}

/// Outputs [begin, end) of few rows.
TUTTI_TARGET inline void block_product_few(BlockProduct const& p, std::int64_t begin, std::int64_t end,
                                           BlockRoundings const& rounded) {
  alignas(64) float tile[block_product_few_rows * tile_columns];
  for (std::int64_t o = begin; o < end; o += tile_columns) {
    int const n = static_cast<int>(end - o < tile_columns ? end - o : tile_columns);
    block_tile_of(p.weight, o, n, p.rows, p.x, p.x_stride, rounded, tile);
    for (std::int64_t r = 0; r < p.rows; ++r)
      for (int j = 0; j < n; j += F32::lanes) {
        int const lanes = n - j < F32::lanes ? n - j : F32::lanes;
        F32 y = load(tile + r * tile_columns + j);
        if (p.bias != nullptr) y = add(y, load_partial(p.bias + o + j, lanes));
        if (p.residual != nullptr) y = add(y, load_partial(p.residual + r * p.residual_stride + o + j, lanes));
        store_partial(p.y + r * p.y_stride + o + j, y, lanes);
      }
  }
}
/// Outputs [begin, end) of few rows.
TUTTI_TARGET inline void block_swiglu_few(BlockSwiGlu const& p, std::int64_t begin, std::int64_t end,
                                          BlockRoundings const& rounded) {
  alignas(64) float gate[block_product_few_rows * tile_columns], up[block_product_few_rows * tile_columns];
  for (std::int64_t o = begin; o < end; o += tile_columns) {
    int const n = static_cast<int>(end - o < tile_columns ? end - o : tile_columns);
    block_tile_of(p.gate, o, n, p.rows, p.x, p.x_stride, rounded, gate);
    block_tile_of(p.up, o, n, p.rows, p.x, p.x_stride, rounded, up);
    for (std::int64_t r = 0; r < p.rows; ++r)
      for (int j = 0; j < n; j += F32::lanes) {
        int const lanes = n - j < F32::lanes ? n - j : F32::lanes;
        std::int64_t const at = r * tile_columns + j;
        store_partial(p.y + r * p.y_stride + o + j, mul(silu(load(gate + at)), load(up + at)), lanes);
      }
  }
}

/// Blocks as floats: the text of block_dequantise.hpp, compiled for this level. It gives the same bits.
template <class Block>
TUTTI_TARGET void widen_blocks(std::byte const* from, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i)
    blocks::dequantise(reinterpret_cast<Block const*>(from)[i], y + i * block_elements(Block::type));
}
inline void widen_row(BlockMatrix const& w, std::int64_t o, float* y) {
  blocks::with_block(w.type, [&](auto block) {
    using Block = decltype(block);
    std::int64_t const count = w.in / block_elements(Block::type);
    widen_blocks<Block>(w.data + o * count * static_cast<std::int64_t>(sizeof(Block)), count, y);
  });
}
