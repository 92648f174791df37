// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// AdamW and the sum of squares, stamped per instruction set.

template <bool Copy, bool Clear>
TUTTI_TARGET void adamw_range(AdamW const& args, std::int64_t begin, std::int64_t end) {
  F32 const grad_scale = set(args.gradient_scale);
  F32 const b1 = set(args.beta1), keep1 = set(1.0f - args.beta1);
  F32 const b2 = set(args.beta2), keep2 = set(1.0f - args.beta2);
  F32 const inverse1 = set(1.0f / args.correction1), inverse2 = set(1.0f / args.correction2);
  F32 const eps = set(args.eps), rate = set(args.learning_rate);
  F32 const shrink = set(1.0f - args.learning_rate * args.weight_decay);
  for (std::int64_t i = begin; i < end; i += F32::lanes) {
    bool const whole = end - i >= F32::lanes;
    int const rest = whole ? F32::lanes : static_cast<int>(end - i);
    F32 const g = mul(whole ? load(args.gradient + i) : load_partial(args.gradient + i, rest), grad_scale);
    F32 const m0 = whole ? load(args.m + i) : load_partial(args.m + i, rest);
    F32 const v0 = whole ? load(args.v + i) : load_partial(args.v + i, rest);
    F32 const p0 = whole ? load(args.parameter + i) : load_partial(args.parameter + i, rest);
    F32 const m1 = fma(keep1, g, mul(b1, m0));
    F32 const v1 = fma(mul(keep2, g), g, mul(b2, v0));
    F32 const step = div(mul(m1, inverse1), add(sqrt(mul(v1, inverse2)), eps));
    F32 const p1 = fnma(rate, step, mul(shrink, p0));
    if (whole) {
      store(args.m + i, m1);
      store(args.v + i, v1);
      store(args.parameter + i, p1);
      if constexpr (Copy) store(args.copy + i, p1);
      if constexpr (Clear) store(args.cleared + i, zero());
    } else {
      store_partial(args.m + i, m1, rest);
      store_partial(args.v + i, v1, rest);
      store_partial(args.parameter + i, p1, rest);
      if constexpr (Copy) store_partial(args.copy + i, p1, rest);
      if constexpr (Clear) store_partial(args.cleared + i, zero(), rest);
    }
  }
}

/// Sum of x^2 in double over one block: sixteen sums, whose order is the same at every level. Vector extensions of the
/// compiler widen on every instruction set; of vectors wider than those of AVX2 g++ 12 converts each lane alone.
TUTTI_TARGET inline double square_sum_block(float const* x, std::int64_t size) {
  constexpr int width = F64::lanes > 1 ? F64::lanes : 8, vectors = 16 / width, half = vectors / 2;
  typedef float Floats __attribute__((vector_size(4 * width)));
  typedef double Doubles __attribute__((vector_size(8 * width)));
  Doubles sums[vectors] = {};
  std::int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    TUTTI_UNROLL
    for (int j = 0; j < vectors; ++j) {
      Floats narrow;
      __builtin_memcpy(&narrow, x + i + j * width, sizeof(narrow));
      Doubles const wide = __builtin_convertvector(narrow, Doubles);
      sums[j] += wide * wide;
    }
  }
  double lanes[8], sum = 0;
  TUTTI_UNROLL
  for (int j = 0; j < half; ++j) {
    Doubles const both = sums[j] + sums[j + half];
    __builtin_memcpy(lanes + j * width, &both, sizeof(both));
  }
  for (double const lane : lanes) sum += lane;
  for (; i < size; ++i) sum += double{x[i]} * double{x[i]};
  return sum;
}
