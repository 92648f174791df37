// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Products with weights in tiles (core/block_tiles.hpp), for processors whose vectors hold a word of each row of a
/// tile. Stamped per instruction set, before block_many.inl's products.

/// Whether products are made from tiles as they lie.
template <class Block>
inline constexpr bool fast_tiles = one_instruction && F32::lanes == block_tile_rows && has_tiles(Block::type);
inline bool tiles_weights(BlockType type) {
  return has_tiles(type) && blocks::with_tiled_block(type, [](auto block) { return fast_tiles<decltype(block)>; });
}

/// Codes of sixteen blocks side by side, word by word, as in panels: at least 0.
template <class Block>
TUTTI_KERNEL_INLINE void tile_words(std::byte const* tile, I32 (&words)[8]) {
  auto const* const from = reinterpret_cast<std::int32_t const*>(tile);
  if constexpr (sizeof(Block::q) == 32) {
    TUTTI_UNROLL
    for (int word = 0; word < 8; ++word)
      words[word] = bit_xor(load(from + word * block_tile_rows), set_i32(static_cast<std::int32_t>(0x80808080u)));
  } else {
    I32 const low = set_i32(0x0f0f0f0f);
    TUTTI_UNROLL
    for (int word = 0; word < 4; ++word) {
      I32 const both = load(from + word * block_tile_rows);
      words[word] = bit_and(both, low);
      words[4 + word] = bit_and(shift_right_logical<4>(both), low);
    }
  }
}
template <class Block>
TUTTI_KERNEL_INLINE float16 const* tile_scales(std::byte const* tile) {
  return reinterpret_cast<float16 const*>(tile + block_tile_rows * sizeof(Block::q));
}

/// As pack_codes, from tiles.
template <class Block>
TUTTI_TARGET void pack_tiles(BlockMatrix const& w, std::int64_t o, int columns, std::int64_t first, std::int64_t terms,
                             float* panel) {
  std::int64_t const count = w.in / 32, groups = terms / 32;
  float* const scales = panel + terms / 4 * tile_columns;
  float* const mins = scales + groups * tile_columns;
  for (int v = 0; v < tile_columns; v += block_tile_rows) {
    if (v >= columns) {
      for (std::int64_t g = 0; g < groups; ++g) {
        store(scales + g * tile_columns + v, zero());
        if constexpr (has_min<Block>) store(mins + g * tile_columns + v, zero());
      }
      continue;
    }
    std::byte const* tile = w.data + ((o + v) / block_tile_rows * count + first / 32) * block_tile_rows *
                                         static_cast<std::int64_t>(sizeof(Block));
    for (std::int64_t g = 0; g < groups; ++g, tile += block_tile_rows * sizeof(Block)) {
      I32 words[8];
      tile_words<Block>(tile, words);
      TUTTI_UNROLL
      for (int word = 0; word < 8; ++word) store(panel + (8 * g + word) * tile_columns + v, as_f32(words[word]));
      float16 const* const from = tile_scales<Block>(tile);
      store(scales + g * tile_columns + v, load(from));
      if constexpr (has_min<Block>) store(mins + g * tile_columns + v, load(from + block_tile_rows));
    }
  }
}

/// sums[r] = sums over `groups` blocks of row r of x by the rows of a tile: the same numbers as many_kernel's.
template <class Block, int Rows>
TUTTI_TARGET void tile_kernel(std::byte const* tile, std::int64_t groups, std::int64_t in, RoundedRows const& x,
                              F32 (&sums)[Rows]) {
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) sums[r] = zero();
  for (std::int64_t g = 0; g < groups; ++g, tile += block_tile_rows * sizeof(Block)) {
    TUTTI_UNROLL
    for (int line = 0; line < static_cast<int>(block_tile_rows * sizeof(Block)); line += 64)
      __builtin_prefetch(reinterpret_cast<char const*>(tile) + block_ahead + line);
    I32 words[8];
    tile_words<Block>(tile, words);
    F32 const scale = load(tile_scales<Block>(tile));
    F32 min = zero();
    if constexpr (has_min<Block>) min = load(tile_scales<Block>(tile) + block_tile_rows);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      I32 dots = set_i32(x.starts[r * (in / 32) + g]);
      TUTTI_UNROLL
      for (int word = 0; word < 8; ++word) dots = dot4(dots, words[word], word_of(x.q + r * in + 32 * g + 4 * word));
      sums[r] = fma(mul(scale, set(x.scales[r * (in / 32) + g])), to_f32(dots), sums[r]);
      if constexpr (has_min<Block>) sums[r] = fma(min, set(x.scaled_sums[r * (in / 32) + g]), sums[r]);
    }
  }
}
/// Rows [r, r + Rows) of x by sixteen rows of p's weight from row o + j on.
template <class Block, int Rows>
TUTTI_TARGET void tile_product(BlockProduct const& p, std::int64_t o, std::int64_t j, std::int64_t r,
                               RoundedRows const& x) {
  std::int64_t const in = p.weight.in, count = in / 32;
  constexpr auto bytes_of = static_cast<std::int64_t>(block_tile_rows * sizeof(Block));
  std::byte const* const tile = p.weight.data + (o + j) / block_tile_rows * count * bytes_of;
  F32 total[Rows];
  for (std::int64_t first = 0; first == 0 || first < in; first += panel_terms) {
    std::int64_t const terms = in - first < panel_terms ? in - first : panel_terms;
    std::int64_t const at = r * count + first / 32;
    F32 sums[Rows];
    RoundedRows const from{x.q + r * in + first, x.scales + at, nullptr, x.starts + at, x.scaled_sums + at};
    tile_kernel<Block, Rows>(tile + first / 32 * bytes_of, terms / 32, in, from, sums);
    TUTTI_UNROLL
    for (int i = 0; i < Rows; ++i) {
      if (first > 0) {
        total[i] = add(total[i], sums[i]);
      } else {
        total[i] = sums[i];
        if (p.bias != nullptr) total[i] = add(total[i], load(p.bias + j));
        if (p.residual != nullptr) total[i] = add(total[i], load(p.residual + (r + i) * p.residual_stride + j));
      }
    }
  }
  TUTTI_UNROLL
  for (int i = 0; i < Rows; ++i) store(p.y + (r + i) * p.y_stride + j, total[i]);
}
/// As block_product_many, of few rows.
template <class Block>
TUTTI_TARGET void tile_products(BlockProduct const& p, std::int64_t o, std::int64_t n, RoundedRows const& x) {
  for (std::int64_t j = 0; j < n; j += block_tile_rows) {
    std::int64_t r = 0;
    for (; r + 8 <= p.rows; r += 8) tile_product<Block, 8>(p, o, j, r, x);
    for (; r + 4 <= p.rows; r += 4) tile_product<Block, 4>(p, o, j, r, x);
    for (; r + 2 <= p.rows; r += 2) tile_product<Block, 2>(p, o, j, r, x);
    for (; r < p.rows; ++r) tile_product<Block, 1>(p, o, j, r, x);
  }
}
