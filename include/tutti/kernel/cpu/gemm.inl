// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The matrix product on one thread, and the sum of columns. Stamped per instruction set by gemm.hpp, after
/// micro_kernel.inl.

/// out[r * tile_columns + j] = a row r . b column j, both with k contiguous: nothing is packed, b is read once, and its
/// terms are rounded as W says.
template <Words W, int Rows, int Columns, class T>
TUTTI_TARGET void dot_kernel(std::int64_t k, float const* a, std::int64_t a_row, T const* b, std::int64_t b_column,
                             float* out) {
  F32 sums[Rows][Columns];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int j = 0; j < Columns; ++j) sums[r][j] = zero();
  }
  std::int64_t p = 0;
  for (; p + F32::lanes <= k; p += F32::lanes) {
    F32 right[Columns];
    TUTTI_UNROLL
    for (int j = 0; j < Columns; ++j) right[j] = rounded_as<W, T>(load(b + j * b_column + p));
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      F32 const left = load(a + r * a_row + p);
      TUTTI_UNROLL
      for (int j = 0; j < Columns; ++j) sums[r][j] = fma(left, right[j], sums[r][j]);
    }
  }
  int const rest = static_cast<int>(k - p);
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int j = 0; j < Columns; ++j) {
      F32 total = sums[r][j];
      if (rest > 0)
        total = fma(load_partial(a + r * a_row + p, rest), rounded_as<W, T>(load_partial(b + j * b_column + p, rest)),
                    total);
      out[r * tile_columns + j] = sum(total);
    }
  }
}
template <Words W, int Columns, class T>
TUTTI_TARGET void dot_rows(std::int64_t rows, std::int64_t k, float const* a, std::int64_t a_row, T const* b,
                           std::int64_t b_column, float* out) {
  for (; rows >= 4; rows -= 4, a += 4 * a_row, out += 4 * tile_columns)
    dot_kernel<W, 4, Columns>(k, a, a_row, b, b_column, out);
  for (; rows > 0; --rows, a += a_row, out += tile_columns) dot_kernel<W, 1, Columns>(k, a, a_row, b, b_column, out);
}

/// f(c), with the type of c.
template <Words W, class F>
void with_c(Gemm const& g, F const& f) {
  if constexpr (W == Words::wide) {
    f(static_cast<double*>(g.c));
  } else {
    if constexpr (sums_integers<W>)
      if (g.c_dtype == DType::int32) return f(static_cast<std::int32_t*>(g.c));
    if (g.c_dtype == DType::bfloat16) return f(static_cast<bfloat16*>(g.c));
    f(static_cast<float*>(g.c));
  }
}

/// Few rows against a matrix whose columns are contiguous (the weights of a linear layer): generation's product.
template <Words W, class T>
TUTTI_TARGET void gemm_skinny(Gemm const& g, T const* b, std::int64_t n0, std::int64_t n1, float* scratch) {
  auto const* a = static_cast<float const*>(g.a);
  std::int64_t a_row = g.a_row;
  if (!gemm_reads_rows(g)) {
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t p = 0; p < g.k; ++p) {
        std::int64_t const at = i * g.a_row + p * g.a_column;
        scratch[i * g.k + p] = g.a_dtype == DType::bfloat16
                                   ? one_word<W>(static_cast<bfloat16 const*>(g.a) + at, 0, 1)
                                   : one_word<W>(static_cast<float const*>(g.a) + at, 0, 1);
      }
    a = scratch;
    a_row = g.k;
  }
  alignas(64) float tile[gemm_skinny_rows * tile_columns];
  for (std::int64_t j = n0; j < n1; j += tile_columns) {
    int const columns = static_cast<int>(n1 - j < tile_columns ? n1 - j : tile_columns);
    int v = 0;
    for (; v + 4 <= columns; v += 4)
      dot_rows<W, 4>(g.m, g.k, a, a_row, b + (j + v) * g.b_column, g.b_column, tile + v);
    for (; v < columns; ++v) dot_rows<W, 1>(g.m, g.k, a, a_row, b + (j + v) * g.b_column, g.b_column, tile + v);
    with_c<W>(g, [&](auto* c) {
      finish(tile, static_cast<int>(g.m), columns, c + j, g.c_row, g.alpha, g.beta,
             {.epilogue = gemm_has_epilogue(g) ? &g.epilogue : nullptr, .j = j});
    });
  }
}

/// Packs rows from element (i, p) on, of any type that the product takes.
template <Words W>
TUTTI_TARGET void pack_left(Word<W>* to, Gemm const& g, std::int64_t i, std::int64_t p, std::int64_t rows,
                            std::int64_t terms) {
  std::int64_t const at = i * g.a_row + p * g.a_column;
  if constexpr (W == Words::wide) {
    pack_rows<W>(to, static_cast<double const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
  } else if constexpr (sums_integers<W>) {
    constexpr Words with_sign = W == Words::bytes ? Words::offset_bytes : W;
    if (g.a_dtype == DType::uint8)
      pack_rows<W>(to, static_cast<std::uint8_t const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
    else pack_rows<with_sign>(to, static_cast<std::int8_t const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
  } else if (g.a_dtype == DType::bfloat16) {
    pack_rows<W>(to, static_cast<bfloat16 const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
  } else {
    pack_rows<W>(to, static_cast<float const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
  }
}
/// Packs columns from element (p, j) on, of any type that the product takes.
template <Words W>
TUTTI_TARGET void pack_right(Word<W>* to, Gemm const& g, std::int64_t p, std::int64_t j, std::int64_t columns,
                             std::int64_t terms) {
  std::int64_t const at = p * g.b_row + j * g.b_column;
  if constexpr (W == Words::wide)
    pack_columns<W>(to, static_cast<double const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
  else if constexpr (sums_integers<W>)
    pack_columns<W>(to, static_cast<std::int8_t const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
  else if (g.b_dtype == DType::bfloat16)
    pack_columns<W>(to, static_cast<bfloat16 const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
  else
    pack_columns<W>(to, static_cast<float const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
}
/// What 128 too much in every term of the left operand adds to the sums of packed columns, negated.
TUTTI_TARGET inline void shifts_of_columns(float const* panels, std::int64_t columns, std::int64_t words,
                                           std::int32_t* shifts) {
  for (std::int64_t j = 0; j < columns; j += tile_columns, panels += words * tile_columns) {
    int const width = panel_columns(columns - j);
    I32 const offset = set_i32(static_cast<std::int32_t>(0x80808080u));
    for (int v = 0; v < width; v += F32::lanes) {
      constexpr int chains = 4;  // the instruction's latency
      I32 total[chains];
      TUTTI_UNROLL
      for (int i = 0; i < chains; ++i) total[i] = set_i32(0);
      std::int64_t p = 0;
      for (; p + chains <= words; p += chains) {
        TUTTI_UNROLL
        for (int i = 0; i < chains; ++i)
          total[i] = dot4(total[i], offset, as_i32(load(panels + (p + i) * width + v)));
      }
      for (; p < words; ++p) total[0] = dot4(total[0], offset, as_i32(load(panels + p * width + v)));
      store(shifts + j + v, sub(set_i32(0), add(add(total[0], total[1]), add(total[2], total[3]))));
    }
  }
}

/// Rows [m0, m1) and columns [n0, n1) of the product, with `scratch` of gemm_scratch(g, m1 - m0, n1 - n0) floats.
/// How the sum over k is split depends on the whole product alone.
template <Words W>
TUTTI_TARGET void gemm_of_words(Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1,
                                float* scratch) {
  if constexpr (W == Words::plain || W == Words::rounded || W == Words::pairs)
    if (gemm_is_skinny(g)) {
      constexpr Words words = W == Words::plain ? W : Words::rounded;  // reading b takes longer than the products
      if (g.b_dtype == DType::bfloat16)
        return gemm_skinny<words>(g, static_cast<bfloat16 const*>(g.b), n0, n1, scratch);
      return gemm_skinny<words>(g, static_cast<float const*>(g.b), n0, n1, scratch);
    }
  constexpr Words kernel = W == Words::rounded ? Words::plain : W;
  constexpr bool offsets = W == Words::bytes;
  GemmBlocking const block = gemm_blocking(g, m1 - m0, n1 - n0, word_of(W));
  // Few rows do not repay the packing of rows that are contiguous already.
  bool const direct = W == Words::plain && g.b_panels == nullptr && g.b_dtype == DType::float32 && g.b_column == 1 &&
                      g.m <= 2 * tile_rows;
  // Panels are packed just before their first use. Contiguous columns are packed for several panels at a time: their
  // rows lie in as many pages as there are terms.
  std::int64_t const group = (g.b_column == 1 ? 4 : 1) * tile_columns;
  std::int64_t const packed_columns = gemm_packed_columns(g, block);
  auto* const right = reinterpret_cast<Word<W>*>(scratch);
  auto* const shifts = reinterpret_cast<std::int32_t*>(right + packed_columns * words_for(W, block.kc));
  Word<W>* const left = right + packed_columns * (words_for(W, block.kc) + (offsets ? 1 : 0));
  bool const shifted = offsets && g.a_dtype == DType::int8;
  GemmEpilogue const* const epilogue = gemm_has_epilogue(g) ? &g.epilogue : nullptr;
  for (std::int64_t jc = n0; jc < n1; jc += block.nc) {
    std::int64_t const j_end = n1 - jc < block.nc ? n1 : jc + block.nc;
    // With no terms there is one block of none.
    for (std::int64_t p = 0; p == 0 || p < g.k; p += block.kc) {
      std::int64_t const terms = g.k - p < block.kc ? g.k - p : block.kc, k = words_for(W, terms);
      float const beta = p == 0 ? g.beta : 1.0f;
      GemmEpilogue const* const last = p + terms == g.k ? epilogue : nullptr;
      for (std::int64_t ic = m0; ic < m1; ic += block.mc) {
        std::int64_t const rows = m1 - ic < block.mc ? m1 - ic : block.mc;
        pack_left<W>(left, g, ic, p, rows, terms);
        for (std::int64_t j = jc; j < j_end; j += tile_columns) {
          int const columns = static_cast<int>(j_end - j < tile_columns ? j_end - j : tile_columns);
          Place place{.epilogue = last, .i = ic, .j = j};
          if constexpr (sums_integers<W>)
            place.row_scales = g.epilogue.row_scales, place.column_scales = g.epilogue.column_scales;
          Word<W> const* panel = right + (j - jc) * k;
          std::int64_t row = panel_columns(columns);
          if (direct && columns == tile_columns) {
            panel = static_cast<Word<W> const*>(g.b) + p * g.b_row + j;
            row = g.b_row;
          } else if (g.b_panels != nullptr) {
            panel = static_cast<Word<W> const*>(g.b_panels->words) + j * words_for(W, g.k) + p / terms_of(W) * row;
            if (shifted) place.shifts = g.b_panels->shifts + j;
          } else {
            if (ic == m0 && (direct || (j - jc) % group == 0)) {
              std::int64_t const packed = j_end - j < group ? j_end - j : group;
              pack_right<W>(right + (j - jc) * k, g, p, j, packed, terms);
              if constexpr (offsets)
                if (shifted) shifts_of_columns(panel, packed, k, shifts + (j - jc));
            }
            if (shifted) place.shifts = shifts + (j - jc);
          }
          with_c<W>(g, [&](auto* c) {
            multiply_panel<kernel>(k, left, k, rows, panel, row, columns, c + ic * g.c_row + j, g.c_row, g.alpha, beta,
                                   place);
          });
        }
      }
    }
  }
}

/// For dispatch by level and product.
template <Product P>
GemmWord word_of_product() {
  return word_of(words_of(P));
}
template <Product P>
void gemm_region(Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1, float* scratch) {
  gemm_of_words<words_of(P)>(g, m0, m1, n0, n1, scratch);
}
/// Columns [first, end) of a right operand into panels of whole k, `first` where a panel begins; and their shifts,
/// where the product has them.
template <Product P>
void pack_right_panels(Gemm const& g, std::int64_t first, std::int64_t end, void* to, std::int32_t* shifts) {
  constexpr Words words = words_of(P);
  auto* const panels = static_cast<Word<words>*>(to) + first * words_for(words, g.k);
  pack_right<words>(panels, g, 0, first, end - first, g.k);
  if constexpr (words == Words::bytes) shifts_of_columns(panels, end - first, words_for(words, g.k), shifts + first);
  else static_cast<void>(shifts);
}
inline std::int64_t width_of_panels() { return tile_columns; }

/// sums[c] (= or +=) the sum over Rows rows, in pairs: one pass over the sums for all of them.
template <int Rows>
TUTTI_TARGET void add_rows(float const* x, std::int64_t row, std::int64_t columns, float* sums, bool first) {
  for (std::int64_t c = 0; c < columns; c += F32::lanes) {
    int const n = static_cast<int>(columns - c < F32::lanes ? columns - c : F32::lanes);
    F32 part[Rows];
    if (n == F32::lanes) {
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) part[r] = load(x + r * row + c);
    } else {
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) part[r] = load_partial(x + r * row + c, n);
    }
    TUTTI_UNROLL
    for (int width = Rows / 2; width > 0; width /= 2) {
      TUTTI_UNROLL
      for (int r = 0; r < width; ++r) part[r] = add(part[r], part[r + width]);
    }
    store(sums + c, first ? part[0] : add(load(sums + c), part[0]));
  }
}
/// Columns [n0, n1) of a column sum. Rows are read in long strips, as memory likes it, and in blocks: the error grows
/// with the number of blocks, not of rows.
TUTTI_TARGET inline void column_sum_region(ColumnSum const& s, std::int64_t n0, std::int64_t n1) {
  constexpr std::int64_t block = 128, strip = 1024;
  alignas(64) float part[strip], total[strip];
  for (std::int64_t j = n0; j < n1; j += strip) {
    std::int64_t const columns = n1 - j < strip ? n1 - j : strip;
    for (std::int64_t c = 0; c < columns; c += F32::lanes) store(total + c, zero());
    for (std::int64_t first = 0; first < s.m; first += block) {
      std::int64_t const end = s.m - first < block ? s.m : first + block;
      std::int64_t i = first;
      for (; i + 8 <= end; i += 8) add_rows<8>(s.x + i * s.n + j, s.n, columns, part, i == first);
      for (; i < end; ++i) add_rows<1>(s.x + i * s.n + j, s.n, columns, part, i == first);
      for (std::int64_t c = 0; c < columns; c += F32::lanes) store(total + c, add(load(total + c), load(part + c)));
    }
    for (std::int64_t c = 0; c < columns; c += F32::lanes) {
      int const n = static_cast<int>(columns - c < F32::lanes ? columns - c : F32::lanes);
      float* const out = s.out + j + c;
      F32 sum = load(total + c);
      if (s.beta != 0.0f) sum = fma(set(s.beta), load_partial(out, n), sum);
      store_partial(out, sum, n);
    }
  }
}
