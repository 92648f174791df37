// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Root-mean-square normalisation, stamped per instruction set.

/// Rows [begin, end). The second pass over a row finds it in L1.
TUTTI_TARGET inline void rms_norm_rows(RmsNorm const& args, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  float const inverse = 1.0f / static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const x = args.x + row * n;
    float* const y = args.y + row * n;
    F32 s0 = zero(), s1 = zero();
    std::int64_t i = 0;
    for (; i + 2 * width <= n; i += 2 * width) {
      F32 const x0 = load(x + i), x1 = load(x + i + width);
      s0 = fma(x0, x0, s0);
      s1 = fma(x1, x1, s1);
    }
    for (; i < n; i += width) {
      F32 const v = n - i >= width ? load(x + i) : load_partial(x + i, static_cast<int>(n - i));
      s0 = fma(v, v, s0);
    }
    float const rstd = 1.0f / __builtin_sqrtf(sum(add(s0, s1)) * inverse + args.eps);
    F32 const scale = set(rstd);
    for (i = 0; i + width <= n; i += width)
      store(y + i, mul(mul(load(x + i), scale), load(args.weight + i)));
    if (i < n) {
      int const rest = static_cast<int>(n - i);
      store_partial(y + i, mul(mul(load_partial(x + i, rest), scale), load_partial(args.weight + i, rest)), rest);
    }
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
}

/// Rows [begin, end): dx, and the rows' part of dweight added onto `sums` (channels), unless null. One pass over
/// memory: a row's second visit, for dx and the sums, finds it in L1.
TUTTI_TARGET inline void rms_norm_gradient_rows(RmsNormGradient const& args, std::int64_t begin, std::int64_t end,
                                                float* sums) {
  constexpr std::int64_t width = F32::lanes;
  std::int64_t const n = args.channels;
  float const inverse = 1.0f / static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const x = args.x + row * n;
    float const* const dy = args.dy + row * n;
    F32 const scale = set(args.rstd[row]);
    F32 p0 = zero(), p1 = zero();
    std::int64_t i = 0;
    for (; args.dx != nullptr && i + 2 * width <= n; i += 2 * width) {
      F32 const a = mul(load(dy + i), load(args.weight + i));
      F32 const b = mul(load(dy + i + width), load(args.weight + i + width));
      p0 = fma(a, mul(load(x + i), scale), p0);
      p1 = fma(b, mul(load(x + i + width), scale), p1);
    }
    for (; args.dx != nullptr && i < n; i += width) {
      int const rest = n - i >= width ? static_cast<int>(width) : static_cast<int>(n - i);
      F32 const h = mul(load_partial(dy + i, rest), load_partial(args.weight + i, rest));  // zero beyond the row
      p0 = fma(h, mul(load_partial(x + i, rest), scale), p0);
    }
    F32 const mean_p = set(sum(add(p0, p1)) * inverse);
    float const* const more = args.dx_add == nullptr ? nullptr : args.dx_add + row * n;
    float* const dx = args.dx == nullptr ? nullptr : args.dx + row * n;
    for (i = 0; i < n; i += width) {
      bool const whole = n - i >= width;
      int const rest = whole ? static_cast<int>(width) : static_cast<int>(n - i);
      F32 const d = whole ? load(dy + i) : load_partial(dy + i, rest);
      F32 const hat = mul(whole ? load(x + i) : load_partial(x + i, rest), scale);
      if (sums != nullptr) {
        F32 const weight = fma(d, hat, whole ? load(sums + i) : load_partial(sums + i, rest));
        if (whole) store(sums + i, weight);
        else store_partial(sums + i, weight, rest);
      }
      if (dx != nullptr) {
        F32 const h = mul(d, whole ? load(args.weight + i) : load_partial(args.weight + i, rest));
        F32 const add_to = more == nullptr ? zero() : whole ? load(more + i) : load_partial(more + i, rest);
        F32 const value = fma(scale, fnma(hat, mean_p, h), add_to);
        if (whole) store(dx + i, value);
        else store_partial(dx + i, value, rest);
      }
    }
  }
}
