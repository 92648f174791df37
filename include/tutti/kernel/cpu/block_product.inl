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

/// out[r * out_row] = row r of Rows of x times the row w.
template <class Block, int Rows>
TUTTI_TARGET void block_dots(std::byte const* w, std::int64_t in, float const* x, std::int64_t x_stride,
                             BlockRoundings const& rounded, std::int64_t r, float* out, std::int64_t out_row) {
  constexpr int in_block = block_elements(Block::type);
  if constexpr (in_block == 1)
    plain_dots<decltype(Block::value), Rows>(reinterpret_cast<decltype(Block::value) const*>(w), in, x + r * x_stride,
                                             x_stride, out, out_row);
  else if constexpr (in_block == 32)
    dots_by_32<Block, Rows>(w, in / 32, rounded.by_32.row(r, in, 32), out, out_row);
  else dots_by_256<Block, Rows>(w, in / 256, rounded.by_256.row(r, in, 256), out, out_row);
}
/// tile[r * tile_columns + j] = row r of x times row o + j of w, j < n <= tile_columns. Row after row: bytes that
/// follow one another come fastest.
template <class Block>
TUTTI_TARGET void block_tile(BlockMatrix const& w, std::int64_t o, int n, std::int64_t rows, float const* x,
                             std::int64_t x_stride, BlockRoundings const& rounded, float* tile) {
  std::int64_t const row = w.in / block_elements(Block::type) * static_cast<std::int64_t>(sizeof(Block));
  std::byte const* from = w.data + o * row;
  for (int j = 0; j < n; ++j, from += row) {
    std::int64_t r = 0;
    // As many as the registers hold.
    if constexpr (one_instruction)
      for (; r + 8 <= rows; r += 8)
        block_dots<Block, 8>(from, w.in, x, x_stride, rounded, r, tile + r * tile_columns + j, tile_columns);
    for (; r + 4 <= rows; r += 4)
      block_dots<Block, 4>(from, w.in, x, x_stride, rounded, r, tile + r * tile_columns + j, tile_columns);
    for (; r + 2 <= rows; r += 2)
      block_dots<Block, 2>(from, w.in, x, x_stride, rounded, r, tile + r * tile_columns + j, tile_columns);
    for (; r < rows; ++r) block_dots<Block, 1>(from, w.in, x, x_stride, rounded, r, tile + r * tile_columns + j, 0);
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

/// y = scale code + offset of `count` codes; one rounding, of the sum.
TUTTI_KERNEL_INLINE void widen_codes(std::int8_t const* codes, int count, float scale, float offset, bool shifted,
                                     float* y) {
  for (int i = 0; i < count; i += F32::lanes) {
    F32 const code = to_f32(load(codes + i));
    store(y + i, shifted ? fma(set(scale), code, set(offset)) : mul(set(scale), code));
  }
}
/// Blocks as floats, the same bits as those of block_dequantise.hpp.
template <class Block>
TUTTI_TARGET void widen_blocks(std::byte const* from, std::int64_t count, float* y) {
  constexpr int in_block = block_elements(Block::type);
  if constexpr (in_block == 1) {
    auto const* const numbers = reinterpret_cast<decltype(Block::value) const*>(from);
    for (std::int64_t i = 0; i < count; i += F32::lanes) {
      int const rest = count - i < F32::lanes ? static_cast<int>(count - i) : F32::lanes;
      store_partial(y + i, load_partial(numbers + i, rest), rest);
    }
  } else {
    std::int8_t codes[32];
    for (std::int64_t i = 0; i < count; ++i, y += in_block) {
      auto const& block = reinterpret_cast<Block const*>(from)[i];
      float const d = block.d;
      if constexpr (in_block == 32) {
        bytes::store(codes, bytes::minus(codes_of(block), code_offset<Block>));
        if constexpr (requires { block.m; }) widen_codes(codes, 32, d, block.m, true, y);
        else widen_codes(codes, 32, d, 0.0f, false, y);
      } else {
        Scales const both = scales_of(block);
        std::int16_t scales[16], mins[16];
        bytes::store(scales, both.scales);
        bytes::store(mins, both.mins);
        for (int p = 0; p < 8; ++p) {
          bytes::store(codes, bytes::minus(codes_of(block, p), code_offset<Block>));
          for (int half = 0; half < 2; ++half) {
            int const at = p + 8 * half;
            float const scale = d * static_cast<float>(scales[at]);
            float* const to = y + 32 * p + 16 * half;
            if constexpr (requires { block.dmin; })
              widen_codes(codes + 16 * half, 16, scale, -(float(block.dmin) * static_cast<float>(mins[at])), true, to);
            else widen_codes(codes + 16 * half, 16, scale, 0.0f, false, to);
          }
        }
      }
    }
  }
}
inline void widen_row(BlockMatrix const& w, std::int64_t o, float* y) {
  blocks::with_block(w.type, [&](auto block) {
    using Block = decltype(block);
    std::int64_t const count = w.in / block_elements(Block::type);
    if constexpr (has_tiles(Block::type))
      if (w.tiled) {
        for (std::int64_t i = 0; i < count; ++i) {
          block = blocks::of_tiles<Block>(w.data, count, o, i);
          widen_blocks<Block>(reinterpret_cast<std::byte const*>(&block), 1, y + 32 * i);
        }
        return;
      }
    widen_blocks<Block>(w.data + o * count * static_cast<std::int64_t>(sizeof(Block)), count, y);
  });
}
