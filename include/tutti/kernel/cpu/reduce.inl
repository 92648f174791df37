// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Reductions along the innermost axis and across it, stamped per instruction set.

/// x + y, or the larger one and NaN if either is.
template <bool IsMaximum>
TUTTI_KERNEL_INLINE F32 combine(F32 x, F32 y) {
  if constexpr (IsMaximum) return select(not_equal(x, x), x, max(x, y));
  else return add(x, y);
}

/// Of one contiguous row.
template <bool IsMaximum>
TUTTI_TARGET inline float reduce_row(float const* x, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  float const nothing = IsMaximum ? -__builtin_inff() : 0.0f;
  F32 s[4] = {set(nothing), set(nothing), set(nothing), set(nothing)};
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width)
    for (int k = 0; k < 4; ++k) s[k] = combine<IsMaximum>(s[k], load(x + i + k * width));
  for (; i + width <= n; i += width) s[0] = combine<IsMaximum>(s[0], load(x + i));
  if (i < n) s[1] = combine<IsMaximum>(s[1], load_filled(x + i, static_cast<int>(n - i), nothing));
  F32 const all = combine<IsMaximum>(combine<IsMaximum>(s[0], s[1]), combine<IsMaximum>(s[2], s[3]));
  if constexpr (!IsMaximum) return sum(all);
  return any(not_equal(all, all)) ? __builtin_nanf("") : max_lane(all);
}

/// to[j] = combination of to[j] and x[row * stride + j] over `rows` rows. Runs of 64 rows are combined on their own
/// first, for the sake of rounding and so that neighbouring columns find their lines in L2.
template <bool IsMaximum>
TUTTI_TARGET inline void reduce_rows_into(float* to, float const* x, std::int64_t n, std::int64_t rows,
                                          std::int64_t stride) {
  constexpr std::int64_t width = F32::lanes;
  constexpr std::int64_t run = 64;
  F32 const nothing = set(IsMaximum ? -__builtin_inff() : 0.0f);
  for (std::int64_t begin = 0; begin < rows; begin += run) {
    std::int64_t const end = begin + run < rows ? begin + run : rows;
    std::int64_t j = 0;
    for (; j + 4 * width <= n; j += 4 * width) {
      F32 s[4] = {nothing, nothing, nothing, nothing};
      for (std::int64_t row = begin; row < end; ++row)
        for (int k = 0; k < 4; ++k) s[k] = combine<IsMaximum>(s[k], load(x + row * stride + j + k * width));
      for (int k = 0; k < 4; ++k) store(to + j + k * width, combine<IsMaximum>(load(to + j + k * width), s[k]));
    }
    for (; j < n; j += width) {
      int const rest = static_cast<int>(n - j < width ? n - j : width);
      F32 s = nothing;
      for (std::int64_t row = begin; row < end; ++row)
        s = combine<IsMaximum>(s, load_partial(x + row * stride + j, rest));
      store_partial(to + j, combine<IsMaximum>(load_partial(to + j, rest), s), rest);
    }
  }
}

TUTTI_TARGET inline float reduce_row_of(bool maximum, float const* x, std::int64_t n) {
  return maximum ? reduce_row<true>(x, n) : reduce_row<false>(x, n);
}
TUTTI_TARGET inline void reduce_rows_of(bool maximum, float* to, float const* x, std::int64_t n, std::int64_t rows,
                                        std::int64_t stride) {
  if (maximum) reduce_rows_into<true>(to, x, n, rows, stride);
  else reduce_rows_into<false>(to, x, n, rows, stride);
}
