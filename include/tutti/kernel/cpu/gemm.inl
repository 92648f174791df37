// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The matrix product on one thread. Stamped per instruction set by gemm.hpp, after pack.inl.

/// sum + the products of the terms of two words.
template <Words W>
TUTTI_KERNEL_INLINE F32 multiply_add(F32 left, F32 right, F32 sum) {
  if constexpr (W == Words::pairs) return dot2(sum, as_i32(left), as_i32(right));
  else return fma(left, right, sum);
}

/// c (Rows x Vectors * lanes) = alpha * a b + beta * c for one panel of each operand, sums over k words held in
/// registers.
template <Words W, int Rows, int Vectors>
TUTTI_TARGET void micro_kernel(std::int64_t k, float const* a, float const* b, std::int64_t b_row, float* c,
                               std::int64_t c_row, float alpha, float beta) {
  F32 sums[Rows][Vectors];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[r][v] = zero();
  }
  for (; k > 0; --k, a += Rows, b += b_row) {
    F32 right[Vectors];
    TUTTI_UNROLL
    for (int v = 0; v < Vectors; ++v) right[v] = load(b + v * F32::lanes);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      F32 const left = set(a[r]);
      TUTTI_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[r][v] = multiply_add<W>(left, right[v], sums[r][v]);
    }
  }
  F32 const factor = set(alpha);
  if (beta == 0.0f) {
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TUTTI_UNROLL
      for (int v = 0; v < Vectors; ++v) store(c + r * c_row + v * F32::lanes, mul(factor, sums[r][v]));
    }
  } else {
    F32 const kept = set(beta);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TUTTI_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        float* const p = c + r * c_row + v * F32::lanes;
        store(p, fma(kept, load(p), mul(factor, sums[r][v])));
      }
    }
  }
}

template <Words W>
TUTTI_TARGET void run_micro_kernel(int rows, int columns, std::int64_t k, float const* a, float const* b,
                                          std::int64_t b_row, float* c, std::int64_t c_row, float alpha, float beta) {
  if (columns == tile_columns) {
    if (rows == tile_rows) return micro_kernel<W, tile_rows, tile_vectors>(k, a, b, b_row, c, c_row, alpha, beta);
    if (rows == 2 * row_step) return micro_kernel<W, 2 * row_step, tile_vectors>(k, a, b, b_row, c, c_row, alpha, beta);
    return micro_kernel<W, row_step, tile_vectors>(k, a, b, b_row, c, c_row, alpha, beta);
  }
  if (rows == tile_rows) return micro_kernel<W, tile_rows, 1>(k, a, b, b_row, c, c_row, alpha, beta);
  if (rows == 2 * row_step) return micro_kernel<W, 2 * row_step, 1>(k, a, b, b_row, c, c_row, alpha, beta);
  return micro_kernel<W, row_step, 1>(k, a, b, b_row, c, c_row, alpha, beta);
}

/// Element (i, j) of the whole result is element (0, 0) here: where an epilogue finds its operands.
struct Place {
  GemmEpilogue const* epilogue = nullptr;  ///< null: none
  std::int64_t i = 0, j = 0;
};

template <bool Whole>
TUTTI_KERNEL_INLINE void put(float* p, F32 x, int n) {
  if (Whole)
    store(p, x);
  else
    store_partial(p, x, n);
}
template <bool Whole>
TUTTI_KERNEL_INLINE void finish_vector(F32 value, float* c, std::int64_t at, std::int64_t c_row, float beta,
                                       Place place, std::int64_t row, std::int64_t column, int n) {
  if (beta != 0.0f) value = fma(set(beta), get<Whole>(c + at, n), value);
  if (place.epilogue != nullptr) {
    GemmEpilogue const& e = *place.epilogue;
    std::int64_t const i = place.i + row, j = place.j + column;
    if (e.bias != nullptr) value = add(value, get<Whole>(e.bias + j, n));
    if (e.gelu) {
      if (e.saved != nullptr) put<Whole>(e.saved + i * c_row + j, value, n);
      value = gelu(value);
    }
    if (e.gelu_gradient != nullptr) value = mul(value, gelu_gradient(get<Whole>(e.gelu_gradient + i * c_row + j, n)));
    if (e.residual != nullptr) value = add(value, get<Whole>(e.residual + i * e.residual_stride + j, n));
  }
  put<Whole>(c + at, value, n);
}

/// c = epilogue(alpha * tile + beta * c), `tile` having rows of `tile_columns`.
TUTTI_TARGET inline void finish(float const* tile, int rows, int columns, float* c, std::int64_t c_row, float alpha,
                                float beta, Place place) {
  F32 const factor = set(alpha);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < columns; j += F32::lanes) {
      F32 const value = mul(factor, load(tile + r * tile_columns + j));
      if (columns - j >= F32::lanes)
        finish_vector<true>(value, c, r * c_row + j, c_row, beta, place, r, j, F32::lanes);
      else
        finish_vector<false>(value, c, r * c_row + j, c_row, beta, place, r, j, columns - j);
    }
}

/// c (rows x columns) = epilogue(alpha * a b + beta * c): rows packed with `depth` words, of which the first k are
/// summed, by one panel of columns, `b_row` floats from one k to the next. `rows` ends where a packed panel ends. Whole
/// tiles go from registers to c, others through a small buffer.
template <Words W = Words::plain>
TUTTI_TARGET void multiply_panel(std::int64_t k, float const* a, std::int64_t depth, std::int64_t rows,
                                        float const* b, std::int64_t b_row, int columns, float* c, std::int64_t c_row,
                                        float alpha, float beta, Place place = {}) {
  int const width = panel_columns(columns);
  for (std::int64_t i = 0; i < rows; i += tile_rows) {
    int const height = panel_rows(rows - i);
    int const valid = static_cast<int>(rows - i < height ? rows - i : height);
    float* const target = c + i * c_row;
    for (int r = 0; r < valid; ++r) {
      __builtin_prefetch(target + r * c_row, 1);
      __builtin_prefetch(target + r * c_row + columns - 1, 1);
    }
    if (valid == height && columns == width && place.epilogue == nullptr) {
      run_micro_kernel<W>(height, width, k, a + i * depth, b, b_row, target, c_row, alpha, beta);
    } else {
      alignas(64) float tile[tile_rows * tile_columns];
      run_micro_kernel<W>(height, width, k, a + i * depth, b, b_row, tile, tile_columns, 1.0f, 0.0f);
      finish(tile, valid, columns, target, c_row, alpha, beta, {place.epilogue, place.i + i, place.j});
    }
  }
}

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
    finish(tile, static_cast<int>(g.m), columns, g.c + j, g.c_row, g.alpha, g.beta, {&g.epilogue, 0, j});
  }
}

/// Packs rows from element (i, p) on, of either type.
template <Words W>
TUTTI_TARGET void pack_left(float* to, Gemm const& g, std::int64_t i, std::int64_t p, std::int64_t rows,
                            std::int64_t terms) {
  std::int64_t const at = i * g.a_row + p * g.a_column;
  if (g.a_dtype == DType::bfloat16)
    return pack_rows<W>(to, static_cast<bfloat16 const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
  pack_rows<W>(to, static_cast<float const*>(g.a) + at, g.a_row, g.a_column, rows, terms);
}
/// Packs columns from element (p, j) on, of either type.
template <Words W>
TUTTI_TARGET void pack_right(float* to, Gemm const& g, std::int64_t p, std::int64_t j, std::int64_t columns,
                             std::int64_t terms) {
  std::int64_t const at = p * g.b_row + j * g.b_column;
  if (g.b_dtype == DType::bfloat16)
    return pack_columns<W>(to, static_cast<bfloat16 const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
  pack_columns<W>(to, static_cast<float const*>(g.b) + at, g.b_row, g.b_column, columns, terms);
}

/// Rows [m0, m1) and columns [n0, n1) of the product, with `scratch` of gemm_scratch(g, m1 - m0, n1 - n0) floats.
/// How the sum over k is split depends on the whole product alone.
template <Words W>
TUTTI_TARGET void gemm_of_words(Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1,
                                float* scratch) {
  if (g.k == 0) {
    alignas(64) float const nothing[tile_rows * tile_columns] = {};
    for (std::int64_t i = m0; i < m1; i += tile_rows)
      for (std::int64_t j = n0; j < n1; j += tile_columns)
        finish(nothing, static_cast<int>(m1 - i < tile_rows ? m1 - i : tile_rows),
               static_cast<int>(n1 - j < tile_columns ? n1 - j : tile_columns), g.c + i * g.c_row + j, g.c_row, 0.0f,
               g.beta, {&g.epilogue, i, j});
    return;
  }
  if (gemm_is_skinny(g)) {
    constexpr Words words = W == Words::plain ? W : Words::rounded;  // reading b takes longer than the products
    if (g.b_dtype == DType::bfloat16)
      return gemm_skinny<words>(g, static_cast<bfloat16 const*>(g.b), n0, n1, scratch);
    return gemm_skinny<words>(g, static_cast<float const*>(g.b), n0, n1, scratch);
  }
  GemmBlocking const block = gemm_blocking(g, m1 - m0, n1 - n0, terms_of(W));
  // Few rows do not repay the packing of rows that are contiguous already.
  bool const direct = W == Words::plain && g.b_panels == nullptr && g.b_dtype == DType::float32 && g.b_column == 1 &&
                      g.m <= 2 * tile_rows;
  // Panels are packed just before their first use. Contiguous columns are packed for several panels at a time: their
  // rows lie in as many pages as there are terms.
  std::int64_t const group = (g.b_column == 1 ? 4 : 1) * tile_columns;
  float* const right = scratch;
  float* const left = scratch + gemm_packed_columns(g, block) * words_for(W, block.kc);
  GemmEpilogue const* const epilogue = gemm_has_epilogue(g) ? &g.epilogue : nullptr;
  for (std::int64_t jc = n0; jc < n1; jc += block.nc) {
    std::int64_t const j_end = n1 - jc < block.nc ? n1 : jc + block.nc;
    for (std::int64_t p = 0; p < g.k; p += block.kc) {
      std::int64_t const terms = g.k - p < block.kc ? g.k - p : block.kc, k = words_for(W, terms);
      float const beta = p == 0 ? g.beta : 1.0f;
      GemmEpilogue const* const last = p + terms == g.k ? epilogue : nullptr;
      for (std::int64_t ic = m0; ic < m1; ic += block.mc) {
        std::int64_t const rows = m1 - ic < block.mc ? m1 - ic : block.mc;
        pack_left<W>(left, g, ic, p, rows, terms);
        for (std::int64_t j = jc; j < j_end; j += tile_columns) {
          int const columns = static_cast<int>(j_end - j < tile_columns ? j_end - j : tile_columns);
          float* const c = g.c + ic * g.c_row + j;
          if (direct && columns == tile_columns) {
            multiply_panel<W>(k, left, k, rows, static_cast<float const*>(g.b) + p * g.b_row + j, g.b_row, columns, c,
                              g.c_row, g.alpha, beta, {last, ic, j});
            continue;
          }
          if (g.b_panels != nullptr) {
            int const width = panel_columns(columns);
            float const* const panel = g.b_panels->words + j * words_for(W, g.k) + p / terms_of(W) * width;
            multiply_panel<W>(k, left, k, rows, panel, width, columns, c, g.c_row, g.alpha, beta, {last, ic, j});
            continue;
          }
          float* const panel = right + (j - jc) * k;
          if (ic == m0 && (direct || (j - jc) % group == 0))
            pack_right<W>(panel, g, p, j, j_end - j < group ? j_end - j : group, terms);
          multiply_panel<W>(k, left, k, rows, panel, panel_columns(columns), columns, c, g.c_row, g.alpha, beta,
                         {last, ic, j});
        }
      }
    }
  }
}

/// Columns [first, end) of a right operand into panels of whole k, `first` where a panel begins.
TUTTI_TARGET inline void pack_right_plain(Gemm const& g, std::int64_t first, std::int64_t end, float* to) {
  pack_right<Words::plain>(to + first * g.k, g, 0, first, end - first, g.k);
}
TUTTI_TARGET inline void pack_right_rounded(Gemm const& g, std::int64_t first, std::int64_t end, float* to) {
  pack_right<rounded_words>(to + first * words_for(rounded_words, g.k), g, 0, first, end - first, g.k);
}
inline std::int64_t width_of_panels() { return tile_columns; }

TUTTI_TARGET inline void gemm_region(Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1,
                                     float* scratch) {
  gemm_of_words<Words::plain>(g, m0, m1, n0, n1, scratch);
}
TUTTI_TARGET inline void gemm_region_bfloat16(Gemm const& g, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                                              std::int64_t n1, float* scratch) {
  gemm_of_words<rounded_words>(g, m0, m1, n0, n1, scratch);
}

/// Columns [n0, n1) of a column sum. Blocks of rows are summed first: the error grows with their number, not with the
/// rows'.
TUTTI_TARGET inline void column_sum_region(ColumnSum const& s, std::int64_t n0, std::int64_t n1) {
  constexpr std::int64_t block = 128;
  constexpr int vectors = 4;
  for (std::int64_t j = n0; j < n1; j += vectors * F32::lanes) {
    F32 total[vectors];
    TUTTI_UNROLL
    for (int v = 0; v < vectors; ++v) total[v] = zero();
    bool const whole = n1 - j >= vectors * F32::lanes;
    for (std::int64_t first = 0; first < s.m; first += block) {
      std::int64_t const end = s.m - first < block ? s.m : first + block;
      F32 part[vectors];
      TUTTI_UNROLL
      for (int v = 0; v < vectors; ++v) part[v] = zero();
      for (std::int64_t i = first; i < end; ++i) {
        float const* const row = s.x + i * s.n + j;
        if (whole) {
          TUTTI_UNROLL
          for (int v = 0; v < vectors; ++v) part[v] = add(part[v], load(row + v * F32::lanes));
        } else {
          TUTTI_UNROLL
          for (int v = 0; v < vectors; ++v) {
            std::int64_t const left = n1 - j - v * F32::lanes;
            if (left > 0)
              part[v] = add(
                  part[v], load_partial(row + v * F32::lanes, static_cast<int>(left < F32::lanes ? left : F32::lanes)));
          }
        }
      }
      TUTTI_UNROLL
      for (int v = 0; v < vectors; ++v) total[v] = add(total[v], part[v]);
    }
    TUTTI_UNROLL
    for (int v = 0; v < vectors; ++v) {
      std::int64_t const left = n1 - j - v * F32::lanes;
      if (left <= 0) break;
      int const n = static_cast<int>(left < F32::lanes ? left : F32::lanes);
      float* const out = s.out + j + v * F32::lanes;
      if (s.beta != 0.0f) total[v] = fma(set(s.beta), load_partial(out, n), total[v]);
      store_partial(out, total[v], n);
    }
  }
}
