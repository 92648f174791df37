// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Panels: the order in which the micro-kernel reads its operands. Stamped per instruction set, before gemm.inl.

/// Outputs that one call of the micro-kernel holds in registers: 24 vectors of 32 with AVX-512, 12 of 16 with AVX2.
inline constexpr int tile_rows = F32::lanes == 16 ? 12 : F32::lanes == 8 ? 6 : 3;
inline constexpr int tile_vectors = F32::lanes == 1 ? 4 : 2;
inline constexpr int tile_columns = tile_vectors * F32::lanes;
/// Tiles at the lower edge are a third or two thirds as high, at the right edge one vector wide.
inline constexpr int row_step = tile_rows / 3;

/// What a panel holds for a row (column) at a step of the micro-kernel, in one word of 32 bits.
enum class Words {
  plain,    ///< one term
  rounded,  ///< one term, rounded to bfloat16
  pairs,    ///< two terms as bfloat16, the earlier one in the lower half: for `dot2`
};
/// Those of a product that rounds to bfloat16, at this level.
inline constexpr Words rounded_words = ::tutti::isa::TUTTI_ISA::has_dot2 ? Words::pairs : Words::rounded;
constexpr int terms_of(Words words) { return words == Words::pairs ? 2 : 1; }
/// Words for so many terms.
constexpr std::int64_t words_for(Words words, std::int64_t terms) {
  return (terms + terms_of(words) - 1) / terms_of(words);
}

/// Rows (columns) that the panel starting where `left` rows (columns) are left holds, padding included.
TUTTI_KERNEL_INLINE int panel_rows(std::int64_t left) {
  return left >= tile_rows ? tile_rows : static_cast<int>(left + row_step - 1) / row_step * row_step;
}
TUTTI_KERNEL_INLINE int panel_columns(std::int64_t left) { return left > F32::lanes ? tile_columns : F32::lanes; }

template <bool Whole, class T>
TUTTI_KERNEL_INLINE F32 get(T const* p, int n) {
  return Whole ? load(p) : load_partial(p, n);
}
template <Words W, class T>
TUTTI_KERNEL_INLINE F32 rounded_as(F32 x) {
  return W == Words::rounded && std::is_same_v<T, float> ? round_bfloat16(x) : x;
}
/// The next word of `n` neighbours. The terms lie `stride` apart, `left` are left.
template <Words W, bool Whole, class T>
TUTTI_KERNEL_INLINE F32 words_across(T const* p, std::int64_t stride, std::int64_t left, int n) {
  F32 const first = get<Whole>(p, n);
  if constexpr (W == Words::pairs)
    return ::tutti::isa::TUTTI_ISA::pack_bfloat16(first, left > 1 ? get<Whole>(p + stride, n) : zero());
  else
    return rounded_as<W, T>(first);
}
/// The next words of as many neighbours as there are lanes, `rows` of which count and lie `stride` apart, with their
/// terms contiguous: `words_along_count` words, made of `words_along_terms` terms.
template <Words W, class T>
inline constexpr int words_along_terms = sizeof(T) == 2 || W == Words::pairs ? 8 : 4;
template <Words W, class T>
inline constexpr int words_along_count = words_along_terms<W, T> / terms_of(W);
template <Words W, class T>
TUTTI_KERNEL_INLINE void words_along(T const* p, std::int64_t stride, int rows, F32 (&out)[words_along_count<W, T>]) {
  if constexpr (words_along_terms<W, T> == 4) {
    load_transposed(p, stride, rows, out);
    TUTTI_UNROLL
    for (int c = 0; c < 4; ++c) out[c] = rounded_as<W, T>(out[c]);
  } else if constexpr (W == Words::pairs && sizeof(T) == 2) {
    load_transposed(p, stride, rows, out);
  } else if constexpr (W == Words::pairs) {
    F32 near[4], far[4];
    load_transposed(p, stride, rows, near);
    load_transposed(p + 4, stride, rows, far);
    TUTTI_UNROLL
    for (int c = 0; c < 2; ++c) {
      out[c] = ::tutti::isa::TUTTI_ISA::pack_bfloat16(near[2 * c], near[2 * c + 1]);
      out[c + 2] = ::tutti::isa::TUTTI_ISA::pack_bfloat16(far[2 * c], far[2 * c + 1]);
    }
  } else {
    F32 pairs[4];
    load_transposed(p, stride, rows, pairs);
    TUTTI_UNROLL
    for (int c = 0; c < 4; ++c) {
      out[2 * c] = as_f32(shift_left<16>(as_i32(pairs[c])));
      out[2 * c + 1] = as_f32(bit_and(as_i32(pairs[c]), set_i32(static_cast<std::int32_t>(0xffff0000u))));
    }
  }
}
/// The same of one row.
template <Words W, class T>
inline float one_word(T const* p, std::int64_t stride, std::int64_t left) {
  if constexpr (W == Words::plain) {
    return float(*p);
  } else {
    auto const bits = [](T x) { return std::uint32_t{bfloat16(float(x)).bits}; };
    if constexpr (W == Words::rounded) return std::bit_cast<float>(bits(*p) << 16);
    else return std::bit_cast<float>(bits(*p) | (left > 1 ? bits(p[stride]) : 0u) << 16);
  }
}

/// Words that `pack_rows` writes at most: its last vector may reach past the panel.
TUTTI_KERNEL_INLINE std::int64_t packed_rows_size(std::int64_t rows, std::int64_t k) {
  return (rows + row_step) * k + F32::lanes;
}
TUTTI_KERNEL_INLINE std::int64_t packed_columns_size(std::int64_t columns, std::int64_t k) {
  return (columns + tile_columns - 1) / tile_columns * tile_columns * k;
}

/// Left operand: panels of `tile_rows` rows, within a panel for each word its rows. The panel of row i starts at to + i
/// * words. Element (i, p) of `terms` is from[i * row_stride + p * k_stride]; one stride is 1.
template <Words W = Words::plain, class T>
TUTTI_TARGET void pack_rows(float* to, T const* from, std::int64_t row_stride, std::int64_t k_stride, std::int64_t rows,
                            std::int64_t terms) {
  constexpr int each = terms_of(W);
  std::int64_t const k = words_for(W, terms);
  if (F32::lanes > 1 && k_stride != 1) {
    // A few words of all panels at a time: neighbouring panels share cache lines and pages.
    constexpr std::int64_t few = 16;
    for (std::int64_t first = 0; first < k; first += few) {
      std::int64_t const end = k - first < few ? k : first + few;
      for (std::int64_t i = 0; i < rows; i += tile_rows) {
        int const width = panel_rows(rows - i);
        int const valid = static_cast<int>(rows - i < width ? rows - i : width);
        float* const target = to + i * k;
        T const* const source = from + i;
        // The last vectors reach into the next panel, which has its first words by now.
        F32 const keep = end == k ? load(target + end * width) : zero();
        for (std::int64_t p = first; p < end; ++p)
          store(target + p * width,
                words_across<W, false>(source + p * each * k_stride, k_stride, terms - p * each, valid));
        if (end == k) store(target + end * width, keep);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; i += tile_rows) {
    int const width = panel_rows(rows - i);
    int const valid = static_cast<int>(rows - i < width ? rows - i : width);
    T const* const source = from + i * row_stride;
    float* target = to + i * k;
    std::int64_t p = 0;  // terms
    if constexpr (F32::lanes > 1) {
      // Whole vectors are stored at a distance of `width`: each overwrites what the one before wrote too much.
      constexpr int count = words_along_count<W, T>, step = words_along_terms<W, T>;
      F32 words[count];
      if (valid == tile_rows) {
        for (; p + step <= terms; p += step, target += count * tile_rows) {
          words_along<W>(source + p, row_stride, tile_rows, words);
          TUTTI_UNROLL
          for (int c = 0; c < count; ++c) store(target + c * tile_rows, words[c]);
        }
      } else {
        for (; p + step <= terms; p += step, target += count * width) {
          words_along<W>(source + p, row_stride, valid, words);
          for (int c = 0; c < count; ++c) store(target + c * width, words[c]);
        }
      }
    }
    for (; p < terms; p += each, target += width)
      for (int r = 0; r < width; ++r)
        target[r] = r < valid ? one_word<W>(source + r * row_stride + p * k_stride, k_stride, terms - p) : 0.0f;
  }
}

/// Right operand, one panel: for each word its columns, at most `tile_columns`, padded with values that do not matter.
/// Element (p, j) of `terms` is from[p * k_stride + j * column_stride]; one stride is 1.
template <Words W = Words::plain, class T>
TUTTI_TARGET void pack_panel(float* to, T const* from, std::int64_t k_stride, std::int64_t column_stride,
                             std::int64_t columns, std::int64_t terms) {
  int const width = panel_columns(columns);
  constexpr int lanes = F32::lanes, each = terms_of(W);
  std::int64_t const k = words_for(W, terms);
  if (column_stride == 1) {
    if (columns == tile_columns) {
      for (std::int64_t p = 0; p < k; ++p) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_vectors; ++v)
          store(to + p * tile_columns + v * lanes,
                words_across<W, true>(from + p * each * k_stride + v * lanes, k_stride, terms - p * each, lanes));
      }
      return;
    }
    for (std::int64_t p = 0; p < k; ++p)
      for (int v = 0; v < width; v += lanes) {
        int const left = static_cast<int>(columns) - v;
        store(to + p * width + v, words_across<W, false>(from + p * each * k_stride + v, k_stride, terms - p * each,
                                                         left < 0 ? 0 : left < lanes ? left : lanes));
      }
    return;
  }
  for (int v = 0; v < width; v += lanes) {
    int const left = static_cast<int>(columns) - v;
    float* target = to + v;
    if (left <= 0) {
      for (std::int64_t p = 0; p < k; ++p) store(target + p * width, zero());
      continue;
    }
    T const* const source = from + v * column_stride;
    constexpr int count = words_along_count<W, T>, step = words_along_terms<W, T>;
    F32 words[count];
    std::int64_t p = 0;  // terms
    if (left >= lanes) {
      for (; p + step <= terms; p += step, target += count * width) {
        words_along<W>(source + p, column_stride, lanes, words);
        TUTTI_UNROLL
        for (int c = 0; c < count; ++c) store(target + c * width, words[c]);
      }
    } else {
      for (; p + step <= terms; p += step, target += count * width) {
        words_along<W>(source + p, column_stride, left, words);
        for (int c = 0; c < count; ++c) store(target + c * width, words[c]);
      }
    }
    for (; p < terms; p += each, target += width)
      for (int c = 0; c < lanes; ++c)
        target[c] = c < left ? one_word<W>(source + c * column_stride + p * k_stride, k_stride, terms - p) : 0.0f;
  }
}

/// Right operand, all panels: the panel of column j starts at to + j * words.
template <Words W = Words::plain, class T>
TUTTI_TARGET void pack_columns(float* to, T const* from, std::int64_t k_stride, std::int64_t column_stride,
                               std::int64_t columns, std::int64_t terms) {
  constexpr int each = terms_of(W);
  std::int64_t const k = words_for(W, terms);
  std::int64_t j = 0;
  if (column_stride == 1) {
    std::int64_t const whole = columns / tile_columns * tile_columns;
    for (std::int64_t p = 0; p < k; ++p)
      for (j = 0; j < whole; j += tile_columns) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_columns; v += F32::lanes)
          store(to + j * k + p * tile_columns + v,
                words_across<W, true>(from + p * each * k_stride + j + v, k_stride, terms - p * each, F32::lanes));
      }
  }
  for (; j < columns; j += tile_columns)
    pack_panel<W>(to + j * k, from + j * column_stride, k_stride, column_stride,
                  columns - j < tile_columns ? columns - j : tile_columns, terms);
}
