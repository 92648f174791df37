// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Panels: the order in which the micro-kernel reads its operands. Stamped per instruction set, before gemm.inl.

/// Outputs that one call of the micro-kernel holds in registers: 24 vectors of 32 with AVX-512, 12 of 16 with AVX2.
inline constexpr int tile_rows = F32::lanes == 16 ? 12 : F32::lanes == 8 ? 6 : 3;
inline constexpr int tile_vectors = F32::lanes == 1 ? 4 : 2;
inline constexpr int tile_columns = tile_vectors * F32::lanes;
/// Tiles at the lower edge are a third or two thirds as high, at the right edge one vector wide.
inline constexpr int row_step = tile_rows / 3;

/// Rows (columns) that the panel starting where `left` rows (columns) are left holds, padding included.
TUTTI_KERNEL_INLINE int panel_rows(std::int64_t left) {
  return left >= tile_rows ? tile_rows : static_cast<int>(left + row_step - 1) / row_step * row_step;
}
TUTTI_KERNEL_INLINE int panel_columns(std::int64_t left) { return left > F32::lanes ? tile_columns : F32::lanes; }

/// Floats that `pack_rows` writes at most: its last vector may reach past the panel.
TUTTI_KERNEL_INLINE std::int64_t packed_rows_size(std::int64_t rows, std::int64_t k) {
  return (rows + row_step) * k + F32::lanes;
}
TUTTI_KERNEL_INLINE std::int64_t packed_columns_size(std::int64_t columns, std::int64_t k) {
  return (columns + tile_columns - 1) / tile_columns * tile_columns * k;
}

/// Left operand: panels of `tile_rows` rows, within a panel for each k its rows. The panel of row i starts at to + i *
/// k. Element (i, p) is from[i * row_stride + p * k_stride]; one stride is 1.
TUTTI_TARGET inline void pack_rows(float* to, float const* from, std::int64_t row_stride, std::int64_t k_stride,
                                   std::int64_t rows, std::int64_t k) {
  if (F32::lanes > 1 && k_stride != 1) {
    // A few terms of all panels at a time: neighbouring panels share cache lines and pages.
    constexpr std::int64_t few = 16;
    for (std::int64_t first = 0; first < k; first += few) {
      std::int64_t const end = k - first < few ? k : first + few;
      for (std::int64_t i = 0; i < rows; i += tile_rows) {
        int const width = panel_rows(rows - i);
        int const valid = static_cast<int>(rows - i < width ? rows - i : width);
        float* const target = to + i * k;
        float const* const source = from + i;
        // The last vectors reach into the next panel, which has its first terms by now.
        F32 const keep = end == k ? load(target + end * width) : zero();
        for (std::int64_t p = first; p < end; ++p)
          store(target + p * width, load_partial(source + p * k_stride, valid));
        if (end == k) store(target + end * width, keep);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; i += tile_rows) {
    int const width = panel_rows(rows - i);
    int const valid = static_cast<int>(rows - i < width ? rows - i : width);
    float const* const source = from + i * row_stride;
    float* target = to + i * k;
    std::int64_t p = 0;
    if constexpr (F32::lanes > 1) {
      // Whole vectors are stored at a distance of `width`: each overwrites what the one before wrote too much.
      F32 columns[4];
      if (valid == tile_rows) {
        for (; p + 4 <= k; p += 4, target += 4 * tile_rows) {
          load_transposed(source + p, row_stride, tile_rows, columns);
          TUTTI_UNROLL
          for (int c = 0; c < 4; ++c) store(target + c * tile_rows, columns[c]);
        }
      } else {
        for (; p + 4 <= k; p += 4, target += 4 * width) {
          load_transposed(source + p, row_stride, valid, columns);
          for (int c = 0; c < 4; ++c) store(target + c * width, columns[c]);
        }
      }
    }
    for (; p < k; ++p, target += width)
      for (int r = 0; r < width; ++r) target[r] = r < valid ? source[r * row_stride + p * k_stride] : 0.0f;
  }
}

/// Right operand, one panel: for each k its columns, at most `tile_columns`, padded with values that do not matter.
/// Element (p, j) is from[p * k_stride + j * column_stride]; one stride is 1.
TUTTI_TARGET inline void pack_panel(float* to, float const* from, std::int64_t k_stride, std::int64_t column_stride,
                                    std::int64_t columns, std::int64_t k) {
  int const width = panel_columns(columns);
  constexpr int lanes = F32::lanes;
  if (column_stride == 1) {
    if (columns == tile_columns) {
      for (std::int64_t p = 0; p < k; ++p) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_vectors; ++v)
          store(to + p * tile_columns + v * lanes, load(from + p * k_stride + v * lanes));
      }
      return;
    }
    for (std::int64_t p = 0; p < k; ++p)
      for (int v = 0; v < width; v += lanes) {
        int const left = static_cast<int>(columns) - v;
        store(to + p * width + v, load_partial(from + p * k_stride + v, left < 0 ? 0 : left < lanes ? left : lanes));
      }
    return;
  }
  for (int v = 0; v < width; v += lanes) {
    int const left = static_cast<int>(columns) - v;
    float* const target = to + v;
    if (left <= 0) {
      for (std::int64_t p = 0; p < k; ++p) store(target + p * width, zero());
      continue;
    }
    float const* const source = from + v * column_stride;
    F32 rows[4];
    std::int64_t p = 0;
    if (left >= lanes) {
      for (; p + 4 <= k; p += 4) {
        load_transposed(source + p, column_stride, lanes, rows);
        TUTTI_UNROLL
        for (int c = 0; c < 4; ++c) store(target + (p + c) * width, rows[c]);
      }
    } else {
      for (; p + 4 <= k; p += 4) {
        load_transposed(source + p, column_stride, left, rows);
        for (int c = 0; c < 4; ++c) store(target + (p + c) * width, rows[c]);
      }
    }
    for (; p < k; ++p)
      for (int c = 0; c < lanes; ++c)
        target[p * width + c] = c < left ? source[c * column_stride + p * k_stride] : 0.0f;
  }
}

/// Right operand, all panels: the panel of column j starts at to + j * k.
TUTTI_TARGET inline void pack_columns(float* to, float const* from, std::int64_t k_stride, std::int64_t column_stride,
                                      std::int64_t columns, std::int64_t k) {
  std::int64_t j = 0;
  if (column_stride == 1) {
    std::int64_t const whole = columns / tile_columns * tile_columns;
    for (std::int64_t p = 0; p < k; ++p)
      for (j = 0; j < whole; j += tile_columns) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_columns; v += F32::lanes)
          store(to + j * k + p * tile_columns + v, load(from + p * k_stride + j + v));
      }
  }
  for (; j < columns; j += tile_columns)
    pack_panel(to + j * k, from + j * column_stride, k_stride, column_stride,
               columns - j < tile_columns ? columns - j : tile_columns, k);
}
