// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Products of many rows with quantised weights: codes in panels by rows rounded to int8, in integers within a group of
/// codes that share a scale. Stamped per instruction set, after block_product.inl.

// Of a group of codes that share a scale: how many; what is taken from a code as it stands in panels, which is at
// least 0 there; the largest one.
template <class Block>
inline constexpr int group_codes = 32;
template <class Block>
inline constexpr int panel_offset = code_offset<Block>;
template <class Block>
inline constexpr int largest_code = 15;
template <class Block>
inline constexpr bool has_min = requires(Block const& b) { b.m; } || requires(Block const& b) { b.dmin; };
template <>
inline constexpr int group_codes<blocks::Q2_K> = 16;
template <>
inline constexpr int group_codes<blocks::Q3_K> = 16;
template <>
inline constexpr int group_codes<blocks::Q6_K> = 16;
template <>
inline constexpr int panel_offset<blocks::Q8_0> = 128;
template <>
inline constexpr int panel_offset<blocks::IQ4_NL> = 128;
template <>
inline constexpr int panel_offset<blocks::IQ4_XS> = 128;
template <>
inline constexpr int largest_code<blocks::Q8_0> = 255;
template <>
inline constexpr int largest_code<blocks::IQ4_NL> = 255;
template <>
inline constexpr int largest_code<blocks::IQ4_XS> = 255;
template <>
inline constexpr int largest_code<blocks::Q5_0> = 31;
template <>
inline constexpr int largest_code<blocks::Q5_1> = 31;
template <>
inline constexpr int largest_code<blocks::Q5_K> = 31;
template <>
inline constexpr int largest_code<blocks::Q6_K> = 63;

/// Whether a product of many rows is in integers: where it is faster than in floats. Without the instruction for bytes,
/// codes of eight bits leave no room in sums of two products.
template <class Block>
inline constexpr bool many_in_integers =
    is_quantised(Block::type) && (one_instruction || (F32::lanes > 1 && largest_code<Block> <= 127));
inline bool rounds_many(BlockType type) {
  return blocks::with_block(type, [](auto block) { return many_in_integers<decltype(block)>; });
}

/// Rows of x to int8 in blocks of 32, with the sums of sixteen integers.
TUTTI_TARGET inline void round_many(std::int64_t rows, std::int64_t in, float const* x, std::int64_t x_stride,
                                    RoundedRows const& to, std::int64_t first) {
  for (std::int64_t r = first; r < first + rows; ++r)
    for (std::int64_t i = 0; i < in / 32; ++i) {
      std::int8_t* const q = to.q + r * in + 32 * i;
      to.scales[r * (in / 32) + i] = half_scale(round_32(x + r * x_stride + 32 * i, q));
      for (int half = 0; half < 2; ++half) {
        I32 sums = set_i32(0);
        for (int v = 0; v < 16; v += F32::lanes) sums = add(sums, load(q + 16 * half + v));
        to.sums[r * (in / 16) + 2 * i + half] = static_cast<std::int16_t>(sum(to_f32(sums)));
      }
    }
}

/// Terms of a panel: with its scales it stays in the first-level cache while all rows go by.
inline constexpr std::int64_t panel_terms = 768;
/// Rows of x that are multiplied at a time: what the registers hold.
inline constexpr int many_rows = F32::lanes == 16 ? 6 : 3;

/// Codes [first, first + terms) of `columns` rows of w from row o on, word after word, behind them scales, and mins
/// where there are.
template <class Block>
TUTTI_TARGET void pack_codes(BlockMatrix const& w, std::int64_t o, int columns, std::int64_t first, std::int64_t terms,
                             float* wide, float* panel) {
  constexpr int in_block = block_elements(Block::type), group = group_codes<Block>;
  constexpr int shift = panel_offset<Block> - code_offset<Block>;
  std::int64_t const row = w.in / in_block, groups = terms / group;
  alignas(64) float16 halves[2][panel_terms / 32 * tile_columns];  // scales and mins of blocks of 32
  [[maybe_unused]] Block copied;
  float* const scales = panel + terms / 4 * tile_columns;
  float* const mins = scales + groups * tile_columns;
  for (int j = 0; j < tile_columns; ++j) {
    auto* const codes = reinterpret_cast<std::int8_t*>(wide + j * (panel_terms / 4));
    if (j >= columns) {
      for (std::int64_t g = 0; g < groups; ++g) {
        scales[g * tile_columns + j] = mins[g * tile_columns + j] = 0.0f;
        if constexpr (in_block == 32) halves[0][g * tile_columns + j] = halves[1][g * tile_columns + j] = float16{};
      }
      continue;
    }
    auto const* const from = reinterpret_cast<Block const*>(w.data) + (o + j) * row + first / in_block;
    for (std::int64_t i = 0; i < terms / in_block; ++i) {
      Block const* source = from + i;
      if constexpr (has_tiles(Block::type))
        if (w.tiled) copied = blocks::of_tiles<Block>(w.data, row, o + j, first / in_block + i), source = &copied;
      Block const& block = *source;
      TUTTI_UNROLL
      for (int line = 0; line < static_cast<int>(sizeof(Block)); line += 64)
        __builtin_prefetch(reinterpret_cast<char const*>(&block) + block_ahead + line);
      if constexpr (in_block == 32) {
        bytes::store(codes + 32 * i, bytes::minus(codes_of(block), -shift));
        halves[0][i * tile_columns + j] = block.d;
        if constexpr (requires { block.m; }) halves[1][i * tile_columns + j] = block.m;
      } else {
        Scales const both = scales_of(block);
        std::int16_t factors[16], less[16];
        bytes::store(factors, both.scales);
        bytes::store(less, both.mins);
        float const d = block.d;
        for (int p = 0; p < 8; ++p) {
          bytes::store(codes + 256 * i + 32 * p, bytes::minus(codes_of(block, p), -shift));
          for (int half = 0; half < 32 / group; ++half) {
            std::int64_t const at = (256 / group * i + 32 / group * p + half) * tile_columns + j;
            scales[at] = d * static_cast<float>(factors[p + 8 * half]);
            if constexpr (requires { block.dmin; })
              mins[at] = -(static_cast<float>(block.dmin) * static_cast<float>(less[p + 8 * half]));
          }
        }
      }
    }
  }
  if constexpr (in_block == 32)
    for (std::int64_t i = 0; i < groups * tile_columns; i += F32::lanes) {
      store(scales + i, load(halves[0] + i));
      if constexpr (requires(Block const& block) { block.m; }) store(mins + i, load(halves[1] + i));
    }
  pack_panel(panel, wide, 1, panel_terms / 4, tile_columns, terms / 4);
}

TUTTI_KERNEL_INLINE I32 word_of(std::int8_t const* q) {
  std::int32_t word;
  __builtin_memcpy(&word, q, 4);
  return set_i32(word);
}
/// tile[r * tile_columns + j] = sums over `groups` groups of Rows rows of x by the columns of a panel.
template <class Block, int Rows>
TUTTI_TARGET void many_kernel(std::int64_t groups, std::int64_t in, RoundedRows const& x, float const* panel,
                              float* tile) {
  constexpr int group = group_codes<Block>, vectors = tile_columns / F32::lanes, lanes = F32::lanes;
  // Sums of two products that are added before they leave the 16 bits of a lane.
  constexpr int most = 32767 / (2 * 127 * largest_code<Block>);
  constexpr int steps = most < group / 4 ? most : group / 4;
  float const* scales = panel + groups * (group / 4) * tile_columns;
  float const* mins = scales + groups * tile_columns;
  F32 sums[Rows][vectors];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < vectors; ++v) sums[r][v] = zero();
  }
  for (std::int64_t g = 0; g < groups; ++g, panel += group / 4 * tile_columns) {
    I32 dots[Rows][vectors];
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      I32 const start = set_i32(x.starts[r * (in / group) + g]);
      TUTTI_UNROLL
      for (int v = 0; v < vectors; ++v) dots[r][v] = start;
    }
    if constexpr (one_instruction) {
      TUTTI_UNROLL
      for (int word = 0; word < group / 4; ++word) {
        I32 codes[vectors];
        TUTTI_UNROLL
        for (int v = 0; v < vectors; ++v) codes[v] = as_i32(load(panel + word * tile_columns + v * lanes));
        TUTTI_UNROLL
        for (int r = 0; r < Rows; ++r) {
          I32 const q = word_of(x.q + r * in + g * group + 4 * word);
          TUTTI_UNROLL
          for (int v = 0; v < vectors; ++v) dots[r][v] = dot4(dots[r][v], codes[v], q);
        }
      }
    } else {
      TUTTI_UNROLL
      for (int begin = 0; begin < group / 4; begin += steps) {
        I32 pairs[Rows][vectors];
        TUTTI_UNROLL
        for (int word = begin; word < begin + steps; ++word) {
          I32 codes[vectors];
          TUTTI_UNROLL
          for (int v = 0; v < vectors; ++v) codes[v] = as_i32(load(panel + word * tile_columns + v * lanes));
          TUTTI_UNROLL
          for (int r = 0; r < Rows; ++r) {
            I32 const q = word_of(x.q + r * in + g * group + 4 * word);
            TUTTI_UNROLL
            for (int v = 0; v < vectors; ++v) {
              I32 const two = dot2_u8(codes[v], q);
              pairs[r][v] = word == begin ? two : add_i16(pairs[r][v], two);
            }
          }
        }
        TUTTI_UNROLL
        for (int r = 0; r < Rows; ++r) {
          TUTTI_UNROLL
          for (int v = 0; v < vectors; ++v) dots[r][v] = dot2_i16(dots[r][v], pairs[r][v], set_i32(0x00010001));
        }
      }
    }
    F32 scale[vectors], min[vectors];
    TUTTI_UNROLL
    for (int v = 0; v < vectors; ++v) {
      scale[v] = load(scales + g * tile_columns + v * lanes);
      if constexpr (has_min<Block>) min[v] = load(mins + g * tile_columns + v * lanes);
    }
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      F32 const step = set(x.scales[r * (in / 32) + g * group / 32]);
      TUTTI_UNROLL
      for (int v = 0; v < vectors; ++v) sums[r][v] = fma(mul(scale[v], step), to_f32(dots[r][v]), sums[r][v]);
      if constexpr (has_min<Block>) {
        F32 const total = set(x.scaled_sums[r * (in / group) + g]);
        TUTTI_UNROLL
        for (int v = 0; v < vectors; ++v) sums[r][v] = fma(min[v], total, sums[r][v]);
      }
    }
  }
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < vectors; ++v) store(tile + r * tile_columns + v * lanes, sums[r][v]);
  }
}

#include <tutti/kernel/cpu/block_tiled.inl>

/// p, of the rows [o, o + n) of its weight, with its x rounded; outputs are p.y[r * p.y_stride + j], j < n, and bias
/// and residual lie as they do.
template <class Block>
TUTTI_TARGET void block_product_many(BlockProduct const& p, std::int64_t o, std::int64_t n, RoundedRows const& x,
                                     float* wide, float* panel) {
  constexpr int group = group_codes<Block>;
  std::int64_t const in = p.weight.in, groups = in / group;
  for (std::int64_t g = 0; g < p.rows * groups; ++g) {
    std::int16_t const* const sums = x.sums + g * (group / 16);
    std::int32_t const total = group == 16 ? sums[0] : sums[0] + sums[group / 16 - 1];
    x.starts[g] = -panel_offset<Block> * total;
    if constexpr (has_min<Block>) x.scaled_sums[g] = x.scales[g * group / 32] * static_cast<float>(total);
  }
  if constexpr (fast_tiles<Block>)
    if (p.weight.tiled && p.rows <= block_product_few_rows) return tile_products<Block>(p, o, n, x);
  alignas(64) float tile[many_rows * tile_columns];
  for (std::int64_t j = 0; j < n; j += tile_columns) {
    int const columns = static_cast<int>(n - j < tile_columns ? n - j : tile_columns);
    for (std::int64_t first = 0; first == 0 || first < in; first += panel_terms) {  // of no terms there are outputs too
      std::int64_t const terms = in - first < panel_terms ? in - first : panel_terms;
      bool packed = false;
      if constexpr (fast_tiles<Block>)
        if ((packed = p.weight.tiled)) pack_tiles<Block>(p.weight, o + j, columns, first, terms, panel);
      if (!packed) pack_codes<Block>(p.weight, o + j, columns, first, terms, wide, panel);
      for (std::int64_t r = 0; r < p.rows;) {
        RoundedRows const at = {x.q + r * in + first, x.scales + r * (in / 32) + first / 32, nullptr,
                                x.starts + r * groups + first / group, x.scaled_sums + r * groups + first / group};
        int const rows = p.rows - r >= many_rows ? many_rows : p.rows - r >= 3 ? 3 : 1;
        if (rows == many_rows) many_kernel<Block, many_rows>(terms / group, in, at, panel, tile);
        else if (rows == 3) many_kernel<Block, 3>(terms / group, in, at, panel, tile);
        else many_kernel<Block, 1>(terms / group, in, at, panel, tile);
        for (int i = 0; i < rows; ++i, ++r)
          for (int v = 0; v < columns; v += F32::lanes) {
            int const lanes = columns - v < F32::lanes ? columns - v : F32::lanes;
            float* const to = p.y + r * p.y_stride + j + v;
            F32 y = load(tile + i * tile_columns + v);
            if (first > 0) {
              y = add(load_partial(to, lanes), y);
            } else {
              if (p.bias != nullptr) y = add(y, load_partial(p.bias + j + v, lanes));
              if (p.residual != nullptr) y = add(y, load_partial(p.residual + r * p.residual_stride + j + v, lanes));
            }
            store_partial(to, y, lanes);
          }
      }
    }
  }
}
inline void block_product_many(BlockProduct const& p, std::int64_t o, std::int64_t n, RoundedRows const& x, float* wide,
                               float* panel) {
  blocks::with_block(p.weight.type, [&](auto block) {
    if constexpr (many_in_integers<decltype(block)>) block_product_many<decltype(block)>(p, o, n, x, wide, panel);
  });
}
inline std::int64_t many_panel_floats() { return (panel_terms / 4 + 2 * (panel_terms / 16)) * tile_columns; }
inline std::int64_t many_wide_floats() { return panel_terms / 4 * tile_columns; }
