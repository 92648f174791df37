// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Sums and maxima of rows, stamped per instruction set. The order depends on the length and the vector width alone.

/// The first n elements (n < lanes), the rest `fill`.
TUTTI_KERNEL_INLINE F32 load_filled(float const* p, int n, float fill) {
  float values[F32::lanes];
  for (int lane = 0; lane < F32::lanes; ++lane) values[lane] = fill;
  for (int lane = 0; lane < n; ++lane) values[lane] = p[lane];
  return load(values);
}

TUTTI_TARGET inline float row_sum(float const* x, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  F32 s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    s0 = add(s0, load(x + i));
    s1 = add(s1, load(x + i + width));
    s2 = add(s2, load(x + i + 2 * width));
    s3 = add(s3, load(x + i + 3 * width));
  }
  for (; i + width <= n; i += width) s0 = add(s0, load(x + i));
  if (i < n) s1 = add(s1, load_partial(x + i, static_cast<int>(n - i)));
  return sum(add(add(s0, s1), add(s2, s3)));
}

/// The largest element, -inf of none. A NaN is not promised to be seen.
TUTTI_TARGET inline float row_maximum(float const* x, std::int64_t n) {
  constexpr std::int64_t width = F32::lanes;
  F32 m0 = set(-__builtin_inff()), m1 = m0;
  std::int64_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    m0 = max(m0, load(x + i));
    m1 = max(m1, load(x + i + width));
  }
  for (; i + width <= n; i += width) m0 = max(m0, load(x + i));
  float largest = max_lane(max(m0, m1));
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/// to[i] = sum over `blocks` rows of partial, `stride` apart, in order; onto what `to` holds where `accumulate`.
TUTTI_TARGET inline void add_blocks(float* to, float const* partial, std::int64_t n, std::int64_t blocks,
                                    std::int64_t stride, bool accumulate) {
  constexpr std::int64_t width = F32::lanes;
  for (std::int64_t i = 0; i < n; i += width) {
    int const rest = n - i >= width ? static_cast<int>(width) : static_cast<int>(n - i);
    F32 total = accumulate ? load_partial(to + i, rest) : zero();
    for (std::int64_t block = 0; block < blocks; ++block)
      total = add(total, load_partial(partial + block * stride + i, rest));
    store_partial(to + i, total, rest);
  }
}
