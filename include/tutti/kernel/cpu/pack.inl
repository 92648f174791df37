// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Panels: the order in which the micro-kernel reads its operands. Stamped per instruction set, before gemm.inl.

/// Outputs that one call of the micro-kernel holds in registers: 24 vectors of 32 with AVX-512, 12 of 16 with AVX2.
inline constexpr int tile_rows = F32::lanes == 16 ? 12 : F32::lanes == 8 ? 6 : 3;
inline constexpr int tile_vectors = F32::lanes == 1 ? 4 : 2;
inline constexpr int tile_columns = tile_vectors * F32::lanes;
/// Tiles at the lower edge are a third or two thirds as high, at the right edge one vector wide.
inline constexpr int row_step = tile_rows / 3;

/// What a panel holds for a row (column) at a step of the micro-kernel, in one word of 32 bits, for `wide` of 64.
/// Earlier terms are in the lower parts of a word.
enum class Words {
  plain,         ///< one term
  rounded,       ///< one term, rounded to bfloat16
  pairs,         ///< two terms as bfloat16: for `dot2`
  halves,        ///< two terms as integers of 16 bits: for `dot2_i16`
  bytes,         ///< four terms as bytes: for `dot4`
  offset_bytes,  ///< four signed terms plus 128: the unsigned side of `dot4`
  wide,          ///< one term of float64
};
/// Those of a product, at this level.
constexpr Words words_of(Product product) {
  switch (product) {
    case Product::float32: break;
    case Product::bfloat16: return ::tutti::isa::TUTTI_ISA::has_dot2 ? Words::pairs : Words::rounded;
    case Product::int8: return ::tutti::isa::TUTTI_ISA::has_dot4 ? Words::bytes : Words::halves;
    case Product::float64: return Words::wide;
  }
  return Words::plain;
}
constexpr int terms_of(Words words) {
  if (words == Words::bytes || words == Words::offset_bytes) return 4;
  return words == Words::pairs || words == Words::halves ? 2 : 1;
}
constexpr GemmWord word_of(Words words) {
  return {.terms = terms_of(words), .bytes = words == Words::wide ? 8 : 4, .shifted = words == Words::bytes};
}
/// Words for so many terms.
constexpr std::int64_t words_for(Words words, std::int64_t terms) {
  return (terms + terms_of(words) - 1) / terms_of(words);
}

template <Words W>
using Word = std::conditional_t<W == Words::wide, double, float>;
template <Words W>
using WordVector = std::conditional_t<W == Words::wide, F64, F32>;
/// Rows of a tile: with half as many lanes its columns take twice the registers.
template <Words W>
inline constexpr int rows_of = W == Words::wide && F32::lanes > 1 ? tile_rows / 2 : tile_rows;

/// Rows (columns) that the panel starting where `left` rows (columns) are left holds, padding included.
template <Words W = Words::plain>
TUTTI_KERNEL_INLINE int panel_rows(std::int64_t left) {
  constexpr int step = rows_of<W> / 3;
  return left >= rows_of<W> ? rows_of<W> : static_cast<int>(left + step - 1) / step * step;
}
TUTTI_KERNEL_INLINE int panel_columns(std::int64_t left) { return left > F32::lanes ? tile_columns : F32::lanes; }

template <bool Whole, class T>
TUTTI_KERNEL_INLINE auto get(T const* p, int n) {
  return Whole ? load(p) : load_partial(p, n);
}
template <Words W, class T>
TUTTI_KERNEL_INLINE WordVector<W> rounded_as(WordVector<W> x) {
  if constexpr (W == Words::rounded && std::is_same_v<T, float>) return round_bfloat16(x);
  else return x;
}
/// Four bytes a lane: signed ones become unsigned by adding 128.
template <Words W>
TUTTI_KERNEL_INLINE F32 offset_as(F32 x) {
  if constexpr (W == Words::offset_bytes)
    return as_f32(bit_xor(as_i32(x), set_i32(static_cast<std::int32_t>(0x80808080u))));
  else return x;
}
/// The next word of `n` neighbours. The terms lie `stride` apart, `left` are left.
template <Words W, bool Whole, class T>
TUTTI_KERNEL_INLINE WordVector<W> words_across(T const* p, std::int64_t stride, std::int64_t left, int n) {
  auto const first = get<Whole>(p, n);
  if constexpr (W == Words::pairs) {
    return ::tutti::isa::TUTTI_ISA::pack_bfloat16(first, left > 1 ? get<Whole>(p + stride, n) : zero());
  } else if constexpr (W == Words::halves) {
    I32 const second = left > 1 ? get<Whole>(p + stride, n) : set_i32(0);
    return as_f32(bit_or(bit_and(first, set_i32(0xffff)), shift_left<16>(second)));
  } else if constexpr (sizeof(T) == 1) {
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(p);  // whose upper bits load as zero
    I32 word = get<Whole>(bytes, n);
    if (left > 1) word = bit_or(word, shift_left<8>(get<Whole>(bytes + stride, n)));
    if (left > 2) word = bit_or(word, shift_left<16>(get<Whole>(bytes + 2 * stride, n)));
    if (left > 3) word = bit_or(word, shift_left<24>(get<Whole>(bytes + 3 * stride, n)));
    return offset_as<W>(as_f32(word));
  } else {
    return rounded_as<W, T>(first);
  }
}
/// Two bytes in the lower half of a lane, as integers of 16 bits with their signs.
template <class T>
TUTTI_KERNEL_INLINE F32 widen_bytes(I32 x) {
  I32 const low = shift_left<24>(x), high = shift_left<16>(x), upper = set_i32(static_cast<std::int32_t>(0xffff0000u));
  if constexpr (std::is_signed_v<T>)
    return as_f32(bit_or(shift_right_logical<16>(shift_right<8>(low)), bit_and(shift_right<8>(high), upper)));
  else
    return as_f32(bit_or(shift_right_logical<24>(low), bit_and(shift_right_logical<8>(high), upper)));
}
/// The next words of as many neighbours as there are lanes, `rows` of which count and lie `stride` apart, with their
/// terms contiguous: `words_along_count` words, made of `words_along_terms` terms.
template <Words W, class T>
inline constexpr int words_along_terms = sizeof(T) == 1 ? 16 : sizeof(T) == 2 || W == Words::pairs ? 8 : 4;
template <Words W, class T>
inline constexpr int words_along_count = words_along_terms<W, T> / terms_of(W);
template <Words W, class T>
TUTTI_KERNEL_INLINE void words_along(T const* p, std::int64_t stride, int rows,
                                     WordVector<W> (&out)[words_along_count<W, T>]) {
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
    F32 packed[4];
    load_transposed(p, stride, rows, packed);
    TUTTI_UNROLL
    for (int c = 0; c < 4; ++c) {
      if constexpr (W == Words::halves) {
        out[2 * c] = widen_bytes<T>(as_i32(packed[c]));
        out[2 * c + 1] = widen_bytes<T>(shift_right_logical<16>(as_i32(packed[c])));
      } else if constexpr (sizeof(T) == 1) {
        out[c] = offset_as<W>(packed[c]);
      } else {
        out[2 * c] = as_f32(shift_left<16>(as_i32(packed[c])));
        out[2 * c + 1] = as_f32(bit_and(as_i32(packed[c]), set_i32(static_cast<std::int32_t>(0xffff0000u))));
      }
    }
  }
}
/// The same of one row.
template <Words W, class T>
inline Word<W> one_word(T const* p, std::int64_t stride, std::int64_t left) {
  if constexpr (W == Words::plain || W == Words::wide) {
    return Word<W>(*p);
  } else if constexpr (sizeof(T) == 1) {
    constexpr int bits = 32 / terms_of(W);
    std::uint32_t word = 0;
    for (int term = 0; term < terms_of(W) && term < left; ++term)
      word |= (static_cast<std::uint32_t>(p[term * stride]) & (0xffffffffu >> (32 - bits))) << (term * bits);
    return std::bit_cast<float>(W == Words::offset_bytes ? word ^ 0x80808080u : word);
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
TUTTI_TARGET void pack_rows(Word<W>* to, T const* from, std::int64_t row_stride, std::int64_t k_stride,
                            std::int64_t rows, std::int64_t terms) {
  constexpr int each = terms_of(W), height = rows_of<W>;
  std::int64_t const k = words_for(W, terms);
  if (F32::lanes > 1 && k_stride != 1) {
    // A few words of all panels at a time: neighbouring panels share cache lines and pages.
    constexpr std::int64_t few = 16;
    for (std::int64_t first = 0; first < k; first += few) {
      std::int64_t const end = k - first < few ? k : first + few;
      for (std::int64_t i = 0; i < rows; i += height) {
        int const width = panel_rows<W>(rows - i);
        int const valid = static_cast<int>(rows - i < width ? rows - i : width);
        Word<W>* const target = to + i * k;
        T const* const source = from + i;
        // The last vectors reach into the next panel, which has its first words by now.
        WordVector<W> const keep = end == k ? load(target + end * width) : WordVector<W>{};
        for (std::int64_t p = first; p < end; ++p)
          store(target + p * width,
                words_across<W, false>(source + p * each * k_stride, k_stride, terms - p * each, valid));
        if (end == k) store(target + end * width, keep);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; i += height) {
    int const width = panel_rows<W>(rows - i);
    int const valid = static_cast<int>(rows - i < width ? rows - i : width);
    T const* const source = from + i * row_stride;
    Word<W>* target = to + i * k;
    std::int64_t p = 0;  // terms
    if constexpr (F32::lanes > 1) {
      // Whole vectors are stored at a distance of `width`: each overwrites what the one before wrote too much.
      constexpr int count = words_along_count<W, T>, step = words_along_terms<W, T>;
      WordVector<W> words[count];
      if (valid == height) {
        for (; p + step <= terms; p += step, target += count * height) {
          words_along<W>(source + p, row_stride, height, words);
          TUTTI_UNROLL
          for (int c = 0; c < count; ++c) store(target + c * height, words[c]);
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
        target[r] = r < valid ? one_word<W>(source + r * row_stride + p * k_stride, k_stride, terms - p) : Word<W>{};
  }
}

/// Right operand, one panel: for each word its columns, at most `tile_columns`, padded with values that do not matter.
/// Element (p, j) of `terms` is from[p * k_stride + j * column_stride]; one stride is 1.
template <Words W = Words::plain, class T>
TUTTI_TARGET void pack_panel(Word<W>* to, T const* from, std::int64_t k_stride, std::int64_t column_stride,
                             std::int64_t columns, std::int64_t terms) {
  int const width = panel_columns(columns);
  constexpr int lanes = WordVector<W>::lanes, each = terms_of(W);
  std::int64_t const k = words_for(W, terms);
  if (column_stride == 1) {
    if (columns == tile_columns) {
      for (std::int64_t p = 0; p < k; ++p) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_columns; v += lanes)
          store(to + p * tile_columns + v,
                words_across<W, true>(from + p * each * k_stride + v, k_stride, terms - p * each, lanes));
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
    Word<W>* target = to + v;
    if (left <= 0) {
      for (std::int64_t p = 0; p < k; ++p) store(target + p * width, WordVector<W>{});
      continue;
    }
    T const* const source = from + v * column_stride;
    constexpr int count = words_along_count<W, T>, step = words_along_terms<W, T>;
    WordVector<W> words[count];
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
        target[c] = c < left ? one_word<W>(source + c * column_stride + p * k_stride, k_stride, terms - p) : Word<W>{};
  }
}

/// Right operand, all panels: the panel of column j starts at to + j * words.
template <Words W = Words::plain, class T>
TUTTI_TARGET void pack_columns(Word<W>* to, T const* from, std::int64_t k_stride, std::int64_t column_stride,
                               std::int64_t columns, std::int64_t terms) {
  constexpr int lanes = WordVector<W>::lanes, each = terms_of(W);
  std::int64_t const k = words_for(W, terms);
  std::int64_t j = 0;
  if (column_stride == 1) {
    std::int64_t const whole = columns / tile_columns * tile_columns;
    for (std::int64_t p = 0; p < k; ++p)
      for (j = 0; j < whole; j += tile_columns) {
        TUTTI_UNROLL
        for (int v = 0; v < tile_columns; v += lanes)
          store(to + j * k + p * tile_columns + v,
                words_across<W, true>(from + p * each * k_stride + j + v, k_stride, terms - p * each, lanes));
      }
  }
  for (; j < columns; j += tile_columns)
    pack_panel<W>(to + j * k, from + j * column_stride, k_stride, column_stride,
                  columns - j < tile_columns ? columns - j : tile_columns, terms);
}
