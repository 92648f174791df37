// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Softmax cross-entropy over one row of logits, stamped per instruction set.

/// logsumexp(z) - z[target], and with `dz` (may be z) dz = weight * (softmax(z) - onehot).
/// Sums of 1,024 exponentials are rounded to float, the sum of those is kept in double.
TUTTI_TARGET inline double cross_entropy_row(float const* z, std::int64_t n, std::int64_t target, float weight,
                                             float* dz) {
  constexpr std::int64_t width = F32::lanes;
  constexpr std::int64_t run = 1024;
  float const low = -__builtin_inff();
  double const chosen = z[target];
  float const largest = row_maximum(z, n);
  F32 const shift = set(largest);
  double total = 0;
  for (std::int64_t block = 0; block < n; block += run) {
    std::int64_t const stop = block + run < n ? block + run : n;
    F32 s0 = zero(), s1 = zero();
    std::int64_t i = block;
    for (; i + 2 * width <= stop; i += 2 * width) {
      F32 const e0 = exp(sub(load(z + i), shift)), e1 = exp(sub(load(z + i + width), shift));
      s0 = add(s0, e0);
      s1 = add(s1, e1);
      if (dz != nullptr) {
        store(dz + i, e0);
        store(dz + i + width, e1);
      }
    }
    for (; i < stop; i += width) {
      int const rest = static_cast<int>(stop - i < width ? stop - i : width);
      F32 const e = exp(sub(rest == width ? load(z + i) : load_filled(z + i, rest, low), shift));
      s0 = add(s0, e);
      if (dz != nullptr) store_partial(dz + i, e, rest);
    }
    total += double{sum(add(s0, s1))};
  }
  if (dz != nullptr) {
    F32 const scale = set(static_cast<float>(double{weight} / total));
    std::int64_t i = 0;
    for (; i + width <= n; i += width) store(dz + i, mul(load(dz + i), scale));
    if (i < n)
      store_partial(dz + i, mul(load_partial(dz + i, static_cast<int>(n - i)), scale), static_cast<int>(n - i));
    dz[target] -= weight;
  }
  return __builtin_log(total) + (double{largest} - chosen);
}
