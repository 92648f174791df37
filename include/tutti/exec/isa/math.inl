// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Elementary functions, written once over the vector types. Included once per level by levels.hpp alone.
/// Bounds hold for every float, and without a fused multiply-add too: the leading constants of argument reduction have
/// trailing zeros. "Or" an absolute error: where results are small or a derivative passes zero.

/// At most 2 ulp, subnormal results included; zero and infinity at the ends.
TUTTI_KERNEL_INLINE F32 exp(F32 x) {
  // The order of operands lets NaN through. Below -104 the result rounds to zero, at 89 it is infinite.
  F32 const clamped = min(set(89.0f), max(set(-104.0f), x));
  F32 const magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  F32 const n = sub(fma(clamped, set(1.44269504f), magic), magic);
  F32 const r = fnma(n, set(3.19461849e-5f), fnma(n, set(0.693115234375f), clamped));
  F32 q = fma(set(0.00139262135f), r, set(0.00836320297f));  // (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2
  q = fma(q, r, set(0.0416665544f));
  q = fma(q, r, set(0.166665768f));
  q = fma(q, r, set(0.5f));
  return scale(add(set(1.0f), fma(mul(r, r), q, r)), n);
}

/// At most 1 ulp. log(0) is -inf, of a negative number NaN.
TUTTI_KERNEL_INLINE F32 log(F32 x) {
  Mask const tiny = less(x, set(1.17549435e-38f));
  F32 const normal = select(tiny, mul(x, set(8388608.0f)), x);
  // Exponent such that the significand lies in [sqrt(1/2), sqrt(2)).
  I32 const offset = sub(as_i32(normal), set_i32(0x3f3504f3));
  I32 const exponent = shift_right<23>(offset);
  F32 const k = sub(to_f32(exponent), select(tiny, set(23.0f), zero()));
  F32 const f = sub(as_f32(add(bit_and(offset, set_i32(0x007fffff)), set_i32(0x3f3504f3))), set(1.0f));
  // log(1 + f) = 2 atanh(s), s = f / (2 + f), summed so that the leading f stays exact.
  F32 const s = div(f, add(set(2.0f), f));
  F32 const z = mul(s, s);
  F32 r = fma(set(0.18181818f), z, set(0.22222222f));
  r = fma(r, z, set(0.28571429f));
  r = fma(r, z, set(0.4f));
  r = mul(fma(r, z, set(0.66666667f)), z);
  F32 const half_square = mul(mul(set(0.5f), f), f);
  F32 const low = fma(k, set(3.19461849e-5f), mul(s, add(half_square, r)));
  F32 result = fma(k, set(0.693115234375f), sub(f, sub(half_square, low)));
  float const infinity = std::numeric_limits<float>::infinity();
  result = select(equal(x, set(infinity)), x, result);
  result = select(equal(x, zero()), set(-infinity), result);
  result = select(less(x, zero()), set(std::numeric_limits<float>::quiet_NaN()), result);
  return select(not_equal(x, x), x, result);
}

/// At most 2 ulp.
TUTTI_KERNEL_INLINE F32 tanh(F32 x) {
  F32 const magnitude = abs(x);
  F32 const z = mul(x, x);
  F32 q = fma(set(-0.00609464132f), z, set(0.0209957540f));  // (tanh(x) - x) / x^3 on |x| <= 0.625
  q = fma(q, z, set(-0.0538506091f));
  q = fma(q, z, set(0.133327678f));
  q = fma(q, z, set(-0.333333289f));
  F32 const small = fma(mul(q, z), x, x);
  F32 const e = exp(add(magnitude, magnitude));
  F32 const large = copysign(sub(set(1.0f), div(set(2.0f), add(e, set(1.0f)))), x);
  return select(less(magnitude, set(0.625f)), small, large);
}

/// 1 / (1 + exp(-x)), at most 4 ulp or 3e-39.
TUTTI_KERNEL_INLINE F32 logistic(F32 x) { return div(set(1.0f), add(set(1.0f), exp(neg(x)))); }

/// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), as x * logistic(2 u). At most 4 ulp or 1e-7.
TUTTI_KERNEL_INLINE F32 gelu(F32 x) {
  F32 const bounded = max(set(-30.0f), x);  // the limit at -inf is zero, not NaN
  F32 const u2 = mul(bounded, fma(mul(bounded, bounded), set(0.0713548163f), set(1.59576912f)));
  return div(bounded, add(set(1.0f), exp(neg(u2))));
}

/// The derivative of gelu. At most 4 ulp or 1e-7.
TUTTI_KERNEL_INLINE F32 gelu_gradient(F32 x) {
  F32 const bounded = min(set(10.0f), max(set(-10.0f), x));  // beyond, 0 and 1 exactly
  F32 const square = mul(bounded, bounded);
  F32 const u2 = mul(bounded, fma(square, set(0.0713548163f), set(1.59576912f)));
  F32 const e = exp(neg(u2));
  F32 const s = div(set(1.0f), add(set(1.0f), e));
  F32 const slope = mul(bounded, fma(square, set(0.214064449f), set(1.59576912f)));
  return fma(mul(s, slope), mul(e, s), s);  // e s is 1 - s without its cancellation
}

/// silu(x) and its derivative from one exponential.
TUTTI_KERNEL_INLINE F32 silu_and_gradient(F32 x, F32& gradient) {
  F32 const low = max(set(-128.0f), x);         // not -inf times the zero that exp gives there
  F32 const bounded = min(set(128.0f), low);    // beyond, the derivative is 0 and 1 exactly
  F32 const e = exp(neg(abs(bounded)));         // never infinite: both signs keep their relative precision
  F32 const larger = div(set(1.0f), add(set(1.0f), e)), smaller = mul(e, larger);  // logistic(|x|) and logistic(-|x|)
  F32 const s = select(less(bounded, zero()), smaller, larger);
  gradient = fma(mul(bounded, larger), smaller, s);
  return mul(low, s);
}
/// x logistic(x). At most 4 ulp or 1e-43: exp's own result is subnormal below -87. The limit at -inf is zero.
TUTTI_KERNEL_INLINE F32 silu(F32 x) {
  F32 gradient;
  return silu_and_gradient(x, gradient);
}
/// The derivative of silu. At most 4 ulp or 1e-7.
TUTTI_KERNEL_INLINE F32 silu_gradient(F32 x) {
  F32 gradient;
  static_cast<void>(silu_and_gradient(x, gradient));
  return gradient;
}

/// sin(x) for quadrant 0, cos(x) for quadrant 1. At most 4 ulp or 3e-11.
TUTTI_KERNEL_INLINE F32 sine_of_quadrant(F32 x, std::int32_t quadrant) {
  F32 const magic = set(12582912.0f);
  F32 const shifted = fma(x, set(0.636619772f), magic);  // its low bits are the multiple of pi / 2
  F32 const n = sub(shifted, magic);
  F32 const r = fnma(n, set(7.5497899549e-8f), fnma(n, set(0.000483751297f), fnma(n, set(1.5703125f), x)));
  I32 const turn = add(as_i32(shifted), set_i32(quadrant));
  F32 const z = mul(r, r);
  F32 s = fma(set(2.75573192e-6f), z, set(-1.98412698e-4f));
  s = fma(s, z, set(0.00833333333f));
  s = fma(s, z, set(-0.166666667f));
  s = fma(mul(s, z), r, r);
  F32 c = fma(set(-2.75573192e-7f), z, set(2.48015873e-5f));
  c = fma(c, z, set(-0.00138888889f));
  c = fma(c, z, set(0.0416666667f));
  c = fma(mul(c, z), z, fnma(set(0.5f), z, set(1.0f)));
  Mask const odd = equal(bit_and(turn, set_i32(1)), set_i32(1));
  I32 const sign = shift_left<30>(bit_and(turn, set_i32(2)));
  F32 result = as_f32(bit_xor(as_i32(select(odd, c, s)), sign));
  // The three-part reduction loses accuracy beyond 2^13 quarter turns; such arguments are rare enough for libm.
  if (any(less(set(8192.0f), abs(x)))) {
    float in[F32::lanes], out[F32::lanes];
    store(in, x);
    store(out, result);
    for (int lane = 0; lane < F32::lanes; ++lane)
      if (in[lane] > 8192.0f || in[lane] < -8192.0f)
        out[lane] = quadrant == 0 ? std::sin(in[lane]) : std::cos(in[lane]);
    result = load(out);
  }
  return result;
}
TUTTI_KERNEL_INLINE F32 sin(F32 x) { return sine_of_quadrant(x, 0); }
TUTTI_KERNEL_INLINE F32 cos(F32 x) { return sine_of_quadrant(x, 1); }

/// Whether `dot2`, `dot4` is an instruction.
inline constexpr bool has_dot2 = false, has_dot4 = false;
/// NaN stays NaN.
TUTTI_KERNEL_INLINE F32 round_bfloat16(F32 x) {
  I32 const bits = as_i32(x);
  I32 const odd = bit_and(shift_right_logical<16>(bits), set_i32(1));
  I32 const rounded = add(bits, add(odd, set_i32(0x7fff)));
  I32 const result = select(not_equal(x, x), bit_or(bits, set_i32(0x00400000)), rounded);
  return as_f32(bit_and(result, set_i32(static_cast<std::int32_t>(0xffff0000u))));
}
TUTTI_KERNEL_INLINE F32 pack_bfloat16(F32 low, F32 high) {
  return as_f32(bit_or(shift_right_logical<16>(as_i32(round_bfloat16(low))), as_i32(round_bfloat16(high))));
}

/// NaN where either is.
TUTTI_KERNEL_INLINE F32 maximum(F32 a, F32 b) { return select(not_equal(a, a), a, max(a, b)); }
TUTTI_KERNEL_INLINE F32 one_or_zero(Mask mask) { return select(mask, set(1.0f), zero()); }
/// `value` in every lane of a vector of the first one's type: for text that names no level.
TUTTI_KERNEL_INLINE F32 like(F32, float value) { return set(value); }

/// erfc(z) of z from 0 on: exp(-z^2) t h(t) with t = 1 / (1 + z / 2); h by a Chebyshev fit on
/// [1/6, 1], 2e-9; exp is zero beyond.
TUTTI_KERNEL_INLINE F32 erfc_of_positive(F32 z) {
  F32 const t = div(set(1.0f), fma(set(0.5f), z, set(1.0f)));
  F32 h = fma(set(0.0323986522f), t, set(-0.171628902f));
  h = fma(h, t, set(0.332568661f));
  h = fma(h, t, set(-0.218993285f));
  h = fma(h, t, set(-0.086649442f));
  h = fma(h, t, set(0.0745679474f));
  h = fma(h, t, set(0.0390575179f));
  h = fma(h, t, set(0.189795469f));
  h = fma(h, t, set(0.24447911f));
  h = fma(h, t, set(0.282318428f));
  h = fma(h, t, set(0.282085846f));
  return mul(mul(t, h), exp(neg(mul(z, z))));
}
/// The error function. At most 4 ulp or 1e-7. Near zero x e(x^2), e by a Chebyshev fit on [0, 1], 2e-9.
TUTTI_KERNEL_INLINE F32 erf(F32 x) {
  F32 const magnitude = abs(x), square = mul(x, x);
  F32 e = fma(set(7.87587506e-5f), square, set(-0.000801686429f));
  e = fma(e, square, set(0.00518908742f));
  e = fma(e, square, set(-0.026854212f));
  e = fma(e, square, set(0.112835947f));
  e = fma(e, square, set(-0.376126267f));
  e = fma(e, square, set(1.12837917f));
  F32 const far = sub(set(1.0f), erfc_of_positive(min(set(10.0f), magnitude)));
  return select(less(magnitude, set(1.0f)), mul(x, e), copysign(far, x));
}
/// x (1 + erf(x / sqrt(2))) / 2, without its cancellation. At most 4 ulp or 1e-7.
TUTTI_KERNEL_INLINE F32 exact_gelu(F32 x) {
  F32 const bounded = max(set(-15.0f), x);  // the limit at -inf is zero, not NaN
  F32 const half = mul(set(0.5f), erfc_of_positive(min(set(11.0f), mul(abs(bounded), set(0.707106781f)))));
  return mul(bounded, select(less(bounded, zero()), half, sub(set(1.0f), half)));
}
