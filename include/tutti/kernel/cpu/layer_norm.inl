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

/// Rows [begin, end): dx, and the rows' parts of dgamma and dbeta added onto `sums` (2, channels), unless null. One
/// pass over memory: a row's second visit, for dx and the sums, finds it in L1.
TUTTI_TARGET inline void layer_norm_gradient_rows(LayerNormGradient const& args, std::int64_t begin, std::int64_t end,
                                                  float* sums) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  float const inverse = 1.0f / static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const x = args.x + row * n;
    float const* const dy = args.dy + row * n;
    F32 const center = set(args.mean[row]), scale = set(args.rstd[row]);
    F32 h0 = zero(), h1 = zero(), p0 = zero(), p1 = zero();
    std::int64_t i = 0;
    for (; args.dx != nullptr && i + 2 * width <= n; i += 2 * width) {
      F32 const a = mul(load(dy + i), load(args.gamma + i));
      F32 const b = mul(load(dy + i + width), load(args.gamma + i + width));
      h0 = add(h0, a);
      h1 = add(h1, b);
      p0 = fma(a, mul(sub(load(x + i), center), scale), p0);
      p1 = fma(b, mul(sub(load(x + i + width), center), scale), p1);
    }
    for (; args.dx != nullptr && i < n; i += width) {
      int const rest = n - i >= width ? static_cast<int>(width) : static_cast<int>(n - i);
      F32 const h = mul(load_partial(dy + i, rest), load_partial(args.gamma + i, rest));  // zero beyond the row
      h0 = add(h0, h);
      p0 = fma(h, mul(sub(load_partial(x + i, rest), center), scale), p0);
    }
    F32 const mean_h = set(sum(add(h0, h1)) * inverse), mean_p = set(sum(add(p0, p1)) * inverse);
    float const* const more = args.dx_add == nullptr ? nullptr : args.dx_add + row * n;
    float* const dx = args.dx == nullptr ? nullptr : args.dx + row * n;
    for (i = 0; i < n; i += width) {
      bool const whole = n - i >= width;
      int const rest = whole ? static_cast<int>(width) : static_cast<int>(n - i);
      F32 const d = whole ? load(dy + i) : load_partial(dy + i, rest);
      F32 const hat = mul(sub(whole ? load(x + i) : load_partial(x + i, rest), center), scale);
      if (sums != nullptr) {
        F32 const gamma = fma(d, hat, whole ? load(sums + i) : load_partial(sums + i, rest));
        F32 const beta = add(d, whole ? load(sums + n + i) : load_partial(sums + n + i, rest));
        if (whole) store(sums + i, gamma);
        else store_partial(sums + i, gamma, rest);
        if (whole) store(sums + n + i, beta);
        else store_partial(sums + n + i, beta, rest);
      }
      if (dx != nullptr) {
        F32 const h = mul(d, whole ? load(args.gamma + i) : load_partial(args.gamma + i, rest));
        F32 const inside = fnma(hat, mean_p, sub(h, mean_h));
        F32 const add_to = more == nullptr ? zero() : whole ? load(more + i) : load_partial(more + i, rest);
        F32 const value = fma(scale, inside, add_to);
        if (whole) store(dx + i, value);
        else store_partial(dx + i, value, rest);
      }
    }
  }
}
