// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The micro-kernel, what happens to a tile before it is stored, and the product of panels. Stamped per instruction
/// set, after pack.inl.

/// What a product sums in, in registers and in memory.
template <Words W>
inline constexpr bool sums_integers = W == Words::halves || W == Words::bytes;
template <Words W>
using SumVector = std::conditional_t<sums_integers<W>, I32, WordVector<W>>;
template <Words W>
using Sum = std::conditional_t<sums_integers<W>, std::int32_t, Word<W>>;

TUTTI_KERNEL_INLINE F32 broadcast(float x) { return set(x); }
TUTTI_KERNEL_INLINE F64 broadcast(double x) { return set_f64(x); }

/// sum + the products of the terms of two words.
template <Words W>
TUTTI_KERNEL_INLINE SumVector<W> multiply_add(WordVector<W> left, WordVector<W> right, SumVector<W> sum) {
  if constexpr (W == Words::pairs) return dot2(sum, as_i32(left), as_i32(right));
  else if constexpr (W == Words::halves) return dot2_i16(sum, as_i32(left), as_i32(right));
  else if constexpr (W == Words::bytes) return dot4(sum, as_i32(left), as_i32(right));
  else return fma(left, right, sum);
}

/// c (Rows x Vectors * lanes) = alpha * a b + beta * c for one panel of each operand, sums over k words held in
/// registers. Integers are stored as they are.
template <Words W, int Rows, int Vectors>
TUTTI_TARGET void micro_kernel(std::int64_t k, Word<W> const* a, Word<W> const* b, std::int64_t b_row, Sum<W>* c,
                               std::int64_t c_row, float alpha, float beta) {
  constexpr int lanes = WordVector<W>::lanes;
  SumVector<W> sums[Rows][Vectors];
  TUTTI_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[r][v] = SumVector<W>{};
  }
  for (; k > 0; --k, a += Rows, b += b_row) {
    WordVector<W> right[Vectors];
    TUTTI_UNROLL
    for (int v = 0; v < Vectors; ++v) right[v] = load(b + v * lanes);
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      WordVector<W> const left = broadcast(a[r]);
      TUTTI_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[r][v] = multiply_add<W>(left, right[v], sums[r][v]);
    }
  }
  if constexpr (sums_integers<W>) {
    TUTTI_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TUTTI_UNROLL
      for (int v = 0; v < Vectors; ++v) store(c + r * c_row + v * lanes, sums[r][v]);
    }
  } else {
    WordVector<W> const factor = broadcast(Word<W>(alpha));
    if (beta == 0.0f) {
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) {
        TUTTI_UNROLL
        for (int v = 0; v < Vectors; ++v) store(c + r * c_row + v * lanes, mul(factor, sums[r][v]));
      }
    } else {
      WordVector<W> const kept = broadcast(Word<W>(beta));
      TUTTI_UNROLL
      for (int r = 0; r < Rows; ++r) {
        TUTTI_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          Sum<W>* const p = c + r * c_row + v * lanes;
          store(p, fma(kept, load(p), mul(factor, sums[r][v])));
        }
      }
    }
  }
}

template <Words W, int Rows>
TUTTI_TARGET void run_micro_kernel(int columns, std::int64_t k, Word<W> const* a, Word<W> const* b, std::int64_t b_row,
                                   Sum<W>* c, std::int64_t c_row, float alpha, float beta) {
  constexpr int lanes = WordVector<W>::lanes;
  if (columns == tile_columns) micro_kernel<W, Rows, tile_columns / lanes>(k, a, b, b_row, c, c_row, alpha, beta);
  else micro_kernel<W, Rows, F32::lanes / lanes>(k, a, b, b_row, c, c_row, alpha, beta);
}
template <Words W>
TUTTI_TARGET void run_micro_kernel(int rows, int columns, std::int64_t k, Word<W> const* a, Word<W> const* b,
                                   std::int64_t b_row, Sum<W>* c, std::int64_t c_row, float alpha, float beta) {
  constexpr int all = rows_of<W>, step = all / 3;
  if (rows == all) run_micro_kernel<W, all>(columns, k, a, b, b_row, c, c_row, alpha, beta);
  else if (rows == 2 * step) run_micro_kernel<W, 2 * step>(columns, k, a, b, b_row, c, c_row, alpha, beta);
  else run_micro_kernel<W, step>(columns, k, a, b, b_row, c, c_row, alpha, beta);
}

/// Element (i, j) of the whole result is element (0, 0) here: where an epilogue finds its operands.
struct Place {
  GemmEpilogue const* epilogue = nullptr;  ///< null: none
  std::int64_t i = 0, j = 0;
  // Of sums of integers, null: none
  std::int32_t const* shifts = nullptr;  ///< of the columns from j on: added
  float const* row_scales = nullptr;     ///< of the whole result
  float const* column_scales = nullptr;  ///< of the whole result
};

template <bool Whole, class T, class V>
TUTTI_KERNEL_INLINE void put(T* p, V x, int n) {
  if (Whole)
    store(p, x);
  else
    store_partial(p, x, n);
}
/// The value of c from a float sum, in registers. `at` is its place in operands that lie as c does.
template <bool Epilogue, bool Whole, class C>
TUTTI_KERNEL_INLINE F32 finish_vector(F32 value, C* c, std::int64_t at, float beta, Place const& place,
                                      std::int64_t row, std::int64_t column, std::int64_t c_row, int n) {
  if (beta != 0.0f) value = fma(set(beta), get<Whole>(c + at, n), value);
  if constexpr (Epilogue) {
    GemmEpilogue const& e = *place.epilogue;
    std::int64_t const i = place.i + row, j = place.j + column;
    if (e.bias != nullptr) value = add(value, get<Whole>(e.bias + j, n));
    if (e.gelu) {
      if (e.saved != nullptr) put<Whole>(static_cast<C*>(e.saved) + i * c_row + j, value, n);
      value = gelu(value);
    }
    if (e.gelu_gradient != nullptr)
      value = mul(value, gelu_gradient(get<Whole>(static_cast<C const*>(e.gelu_gradient) + i * c_row + j, n)));
    if (e.residual != nullptr)
      value = add(value, get<Whole>(static_cast<C const*>(e.residual) + i * e.residual_stride + j, n));
  }
  put<Whole>(c + at, value, n);
  return value;
}

/// A vector of a row of a tile. Returns what was stored, before its rounding to the type of c.
template <bool Epilogue, bool Whole, class S, class C>
TUTTI_KERNEL_INLINE F32 finish_part(S const* tile, int r, int j, int n, C* c, std::int64_t c_row, float alpha,
                                    float beta, Place const& place) {
  std::int64_t const at = r * c_row + j;
  if constexpr (std::is_same_v<S, double>) {
    F64 value = mul(set_f64(double(alpha)), load(tile));
    if (beta != 0.0f) value = fma(set_f64(double(beta)), get<Whole>(c + at, n), value);
    put<Whole>(c + at, value, n);
    return zero();
  } else if constexpr (std::is_same_v<S, float>) {
    return finish_vector<Epilogue, Whole>(mul(set(alpha), load(tile)), c, at, beta, place, r, j, c_row, n);
  } else {
    I32 sum = load(tile);
    if (place.shifts != nullptr) sum = add(sum, load(place.shifts + j));
    if constexpr (std::is_same_v<C, std::int32_t>) {
      if (beta != 0.0f) sum = add(sum, get<Whole>(c + at, n));
      put<Whole>(c + at, sum, n);
      return zero();
    } else {
      F32 factor = set(place.row_scales == nullptr ? alpha : alpha * place.row_scales[place.i + r]);
      if (place.column_scales != nullptr) factor = mul(factor, get<Whole>(place.column_scales + place.j + j, n));
      return finish_vector<Epilogue, Whole>(mul(factor, to_f32(sum)), c, at, beta, place, r, j, c_row, n);
    }
  }
}

/// `Epilogue`: whether there is one.
template <bool Epilogue, class S, class C>
TUTTI_TARGET void finish_rows(S const* tile, int rows, int columns, C* c, std::int64_t c_row, float alpha, float beta,
                              Place const& place) {
  constexpr int lanes = std::is_same_v<S, double> ? F64::lanes : F32::lanes;
  float* const row_sums = Epilogue ? place.epilogue->row_sums : nullptr;
  for (int r = 0; r < rows; ++r) {
    F32 total = zero();
    for (int j = 0; j < columns; j += lanes) {
      S const* const from = tile + r * tile_columns + j;
      if (columns - j >= lanes) {
        total = add(total, finish_part<Epilogue, true>(from, r, j, lanes, c, c_row, alpha, beta, place));
      } else {
        F32 const last = finish_part<Epilogue, false>(from, r, j, columns - j, c, c_row, alpha, beta, place);
        if (row_sums == nullptr) continue;
        float each[F32::lanes];
        store(each, last);
        total = add(total, load_partial(each, columns - j));
      }
    }
    if (row_sums != nullptr)
      row_sums[place.i + r] = (place.j == 0 ? 0.0f : row_sums[place.i + r]) + ::tutti::isa::TUTTI_ISA::sum(total);
  }
}

/// c = epilogue(alpha * tile + beta * c), `tile` having rows of `tile_columns`. Tiles of a row come from left to right.
template <class S, class C>
TUTTI_TARGET void finish(S const* tile, int rows, int columns, C* c, std::int64_t c_row, float alpha, float beta,
                         Place const& place) {
  constexpr bool takes_epilogue = !std::is_same_v<S, double> && !std::is_same_v<C, std::int32_t>;
  if constexpr (takes_epilogue)
    if (place.epilogue != nullptr) return finish_rows<true>(tile, rows, columns, c, c_row, alpha, beta, place);
  finish_rows<false>(tile, rows, columns, c, c_row, alpha, beta, place);
}

/// c (rows x columns) = epilogue(alpha * a b + beta * c): rows packed with `depth` words, of which the first k are
/// summed, by one panel of columns, `b_row` words from one k to the next. `rows` ends where a packed panel ends. Whole
/// tiles of what is summed go from registers to c, others through a small buffer.
template <Words W = Words::plain, class C>
TUTTI_TARGET void multiply_panel(std::int64_t k, Word<W> const* a, std::int64_t depth, std::int64_t rows,
                                 Word<W> const* b, std::int64_t b_row, int columns, C* c, std::int64_t c_row,
                                 float alpha, float beta, Place const& place = {}) {
  constexpr bool as_summed = std::is_same_v<C, Sum<W>> && !sums_integers<W>;
  int const width = panel_columns(columns);
  for (std::int64_t i = 0; i < rows; i += rows_of<W>) {
    int const height = panel_rows<W>(rows - i);
    int const valid = static_cast<int>(rows - i < height ? rows - i : height);
    C* const target = c + i * c_row;
    for (int r = 0; r < valid; ++r) {
      __builtin_prefetch(target + r * c_row, 1);
      __builtin_prefetch(target + r * c_row + columns - 1, 1);
    }
    if constexpr (as_summed)
      if (valid == height && columns == width && place.epilogue == nullptr) {
        run_micro_kernel<W>(height, width, k, a + i * depth, b, b_row, target, c_row, alpha, beta);
        continue;
      }
    alignas(64) Sum<W> tile[rows_of<W> * tile_columns];
    run_micro_kernel<W>(height, width, k, a + i * depth, b, b_row, tile, tile_columns, 1.0f, 0.0f);
    Place here = place;
    here.i += i;
    finish(tile, valid, columns, target, c_row, alpha, beta, here);
  }
}
