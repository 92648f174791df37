// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Layer normalisation, stamped per instruction set.

/// Rows [begin, end). Two passes over a row that is in L1 after the first: the squares are of centred values.
TUTTI_TARGET inline void layer_norm_rows(LayerNorm const& args, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  float const inverse = 1.0f / static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const x = args.x + row * n;
    float* const y = args.y + row * n;
    float const mean = row_sum(x, n) * inverse;
    F32 const center = set(mean);
    F32 s0 = zero(), s1 = zero();
    std::int64_t i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
      F32 const d0 = sub(load(x + i), center), d1 = sub(load(x + i + width), center);
      s0 = fma(d0, d0, s0);
      s1 = fma(d1, d1, s1);
    }
    for (; i < n; i += width) {
      F32 const d = sub(n - i >= width ? load(x + i) : load_filled(x + i, static_cast<int>(n - i), mean), center);
      s0 = fma(d, d, s0);
    }
    float const rstd = 1.0f / __builtin_sqrtf(sum(add(s0, s1)) * inverse + args.eps);
    F32 const scale = set(rstd);
    for (i = 0; i + width <= n; i += width)
      store(y + i, fma(mul(sub(load(x + i), center), scale), load(args.gamma + i), load(args.beta + i)));
    if (i < n) {
      int const rest = static_cast<int>(n - i);
      F32 const hat = mul(sub(load_partial(x + i, rest), center), scale);
      store_partial(y + i, fma(hat, load_partial(args.gamma + i, rest), load_partial(args.beta + i, rest)), rest);
    }
    if (args.mean != nullptr) args.mean[row] = mean;
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
}

TUTTI_TARGET inline void layer_norm_gradient_rows(LayerNormGradient const& args, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  float const inverse = 1.0f / static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const x = args.x + row * n;
    float const* const dy = args.dy + row * n;
    float const* const more = args.dx_add == nullptr ? nullptr : args.dx_add + row * n;
    float* const dx = args.dx + row * n;
    F32 const center = set(args.mean[row]), scale = set(args.rstd[row]);
    F32 h0 = zero(), h1 = zero(), p0 = zero(), p1 = zero();
    std::int64_t i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
      F32 const a = mul(load(dy + i), load(args.gamma + i));
      F32 const b = mul(load(dy + i + width), load(args.gamma + i + width));
      h0 = add(h0, a);
      h1 = add(h1, b);
      p0 = fma(a, mul(sub(load(x + i), center), scale), p0);
      p1 = fma(b, mul(sub(load(x + i + width), center), scale), p1);
    }
    for (; i < n; i += width) {
      int const rest = n - i >= width ? static_cast<int>(width) : static_cast<int>(n - i);
      F32 const h = mul(load_partial(dy + i, rest), load_partial(args.gamma + i, rest));  // zero beyond the row
      h0 = add(h0, h);
      p0 = fma(h, mul(sub(load_partial(x + i, rest), center), scale), p0);
    }
    F32 const mean_h = set(sum(add(h0, h1)) * inverse), mean_p = set(sum(add(p0, p1)) * inverse);
    for (i = 0; i + width <= n; i += width) {
      F32 const hat = mul(sub(load(x + i), center), scale);
      F32 const inside = fnma(hat, mean_p, sub(mul(load(dy + i), load(args.gamma + i)), mean_h));
      store(dx + i, more == nullptr ? mul(scale, inside) : fma(scale, inside, load(more + i)));
    }
    if (i < n) {
      int const rest = static_cast<int>(n - i);
      F32 const hat = mul(sub(load_partial(x + i, rest), center), scale);
      F32 const h = mul(load_partial(dy + i, rest), load_partial(args.gamma + i, rest));
      F32 const inside = fnma(hat, mean_p, sub(h, mean_h));
      F32 const value = more == nullptr ? mul(scale, inside) : fma(scale, inside, load_partial(more + i, rest));
      store_partial(dx + i, value, rest);
    }
  }
}

/// dgamma and dbeta of columns [first, last) over rows [begin, end), either output null to skip it.
/// Runs of 128 rows are summed on their own first: rounding errors grow with the run and the number of runs, not with rows.
TUTTI_TARGET inline void layer_norm_parameter_gradients(LayerNormGradient const& args, std::int64_t first, std::int64_t last,
                                                        std::int64_t begin, std::int64_t end, float* dgamma, float* dbeta) {
  constexpr std::int64_t width = F32::lanes;
  constexpr std::int64_t run = 128;
  std::int64_t const n = args.channels;
  for (std::int64_t column = first; column < last; column += 2 * width) {
    std::int64_t const left = last - column;
    int const rest0 = static_cast<int>(left < width ? left : width);
    int const rest1 = static_cast<int>(left <= width ? 0 : left - width < width ? left - width : width);
    F32 gamma0 = zero(), gamma1 = zero(), beta0 = zero(), beta1 = zero();
    for (std::int64_t block = begin; block < end; block += run) {
      std::int64_t const stop = block + run < end ? block + run : end;
      F32 g0 = zero(), g1 = zero(), b0 = zero(), b1 = zero();
      for (std::int64_t row = block; row < stop; ++row) {
        float const* const x = args.x + row * n + column;
        float const* const dy = args.dy + row * n + column;
        F32 const center = set(args.mean[row]), scale = set(args.rstd[row]);
        if (rest1 == width) {
          F32 const d0 = load(dy), d1 = load(dy + width);
          b0 = add(b0, d0);
          b1 = add(b1, d1);
          g0 = fma(d0, mul(sub(load(x), center), scale), g0);
          g1 = fma(d1, mul(sub(load(x + width), center), scale), g1);
        } else {
          F32 const d0 = load_partial(dy, rest0);
          b0 = add(b0, d0);
          g0 = fma(d0, mul(sub(load_partial(x, rest0), center), scale), g0);
          if (rest1 == 0) continue;
          F32 const d1 = load_partial(dy + width, rest1);
          b1 = add(b1, d1);
          g1 = fma(d1, mul(sub(load_partial(x + width, rest1), center), scale), g1);
        }
      }
      gamma0 = add(gamma0, g0);
      gamma1 = add(gamma1, g1);
      beta0 = add(beta0, b0);
      beta1 = add(beta1, b1);
    }
    if (dgamma != nullptr) {
      store_partial(dgamma + column, gamma0, rest0);
      if (rest1 != 0) store_partial(dgamma + column + width, gamma1, rest1);
    }
    if (dbeta != nullptr) {
      store_partial(dbeta + column, beta0, rest0);
      if (rest1 != 0) store_partial(dbeta + column + width, beta1, rest1);
    }
  }
}
