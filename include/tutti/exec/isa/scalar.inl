// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The portable level: one lane. Included by levels.hpp alone.

namespace tutti::isa::scalar {

struct F32 {
  static constexpr int level = 0;
  static constexpr int lanes = 1;
  float v;
};
struct I32 {
  std::int32_t v;
};
struct F64 {
  static constexpr int lanes = 1;
  double v;
};
struct Mask {
  bool v;
};

TUTTI_KERNEL_INLINE F32 zero() { return {0.0f}; }
TUTTI_KERNEL_INLINE F32 set(float x) { return {x}; }
TUTTI_KERNEL_INLINE I32 set_i32(std::int32_t x) { return {x}; }

TUTTI_KERNEL_INLINE F32 load(float const* p) { return {*p}; }
TUTTI_KERNEL_INLINE F32 load_partial(float const* p, int n) { return {n > 0 ? *p : 0.0f}; }
TUTTI_KERNEL_INLINE void store(float* p, F32 x) { *p = x.v; }
TUTTI_KERNEL_INLINE void store_partial(float* p, F32 x, int n) {
  if (n > 0) *p = x.v;
}
TUTTI_KERNEL_INLINE I32 load(std::int32_t const* p) { return {*p}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::int32_t const* p, int n) { return {n > 0 ? *p : 0}; }
TUTTI_KERNEL_INLINE void store(std::int32_t* p, I32 x) { *p = x.v; }
TUTTI_KERNEL_INLINE void store_partial(std::int32_t* p, I32 x, int n) {
  if (n > 0) *p = x.v;
}
TUTTI_KERNEL_INLINE I32 load(std::int8_t const* p) { return {*p}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::int8_t const* p, int n) { return {n > 0 ? *p : 0}; }
TUTTI_KERNEL_INLINE I32 load(std::uint8_t const* p) { return {*p}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::uint8_t const* p, int n) { return {n > 0 ? *p : 0}; }
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I32 x) { *p = static_cast<std::int8_t>(x.v); }
TUTTI_KERNEL_INLINE void store_partial(std::int8_t* p, I32 x, int n) {
  if (n > 0) *p = static_cast<std::int8_t>(x.v);
}

TUTTI_KERNEL_INLINE F64 set_f64(double x) { return {x}; }
TUTTI_KERNEL_INLINE F64 load(double const* p) { return {*p}; }
TUTTI_KERNEL_INLINE F64 load_partial(double const* p, int n) { return {n > 0 ? *p : 0.0}; }
TUTTI_KERNEL_INLINE void store(double* p, F64 x) { *p = x.v; }
TUTTI_KERNEL_INLINE void store_partial(double* p, F64 x, int n) {
  if (n > 0) *p = x.v;
}
TUTTI_KERNEL_INLINE F64 mul(F64 a, F64 b) { return {a.v * b.v}; }
TUTTI_KERNEL_INLINE F64 fma(F64 a, F64 b, F64 c) { return {a.v * b.v + c.v}; }
TUTTI_KERNEL_INLINE void load_transposed(double const* p, std::int64_t, int, F64 (&out)[4]) {
  for (int c = 0; c < 4; ++c) out[c] = load(p + c);
}

template <class T>
TUTTI_KERNEL_INLINE void load_transposed(T const* p, std::int64_t, int, F32 (&out)[4]) {
  for (int c = 0; c < 4; ++c) __builtin_memcpy(&out[c].v, p + c * static_cast<int>(4 / sizeof(T)), 4);
}
TUTTI_KERNEL_INLINE F32 load(bfloat16 const* p) { return {float(*p)}; }
TUTTI_KERNEL_INLINE F32 load_partial(bfloat16 const* p, int n) { return {n > 0 ? float(*p) : 0.0f}; }
TUTTI_KERNEL_INLINE void store(bfloat16* p, F32 x) { *p = bfloat16(x.v); }
TUTTI_KERNEL_INLINE void store_partial(bfloat16* p, F32 x, int n) {
  if (n > 0) *p = bfloat16(x.v);
}
TUTTI_KERNEL_INLINE F32 set(float16 x) { return {float(x)}; }
TUTTI_KERNEL_INLINE F32 load(float16 const* p) { return {float(*p)}; }
TUTTI_KERNEL_INLINE F32 load_partial(float16 const* p, int n) { return {n > 0 ? float(*p) : 0.0f}; }
TUTTI_KERNEL_INLINE void store(float16* p, F32 x) { *p = float16(x.v); }
TUTTI_KERNEL_INLINE void store_partial(float16* p, F32 x, int n) {
  if (n > 0) *p = float16(x.v);
}

TUTTI_KERNEL_INLINE F32 add(F32 a, F32 b) { return {a.v + b.v}; }
TUTTI_KERNEL_INLINE F32 sub(F32 a, F32 b) { return {a.v - b.v}; }
TUTTI_KERNEL_INLINE F32 mul(F32 a, F32 b) { return {a.v * b.v}; }
TUTTI_KERNEL_INLINE F32 div(F32 a, F32 b) { return {a.v / b.v}; }
TUTTI_KERNEL_INLINE F32 fma(F32 a, F32 b, F32 c) { return {a.v * b.v + c.v}; }
TUTTI_KERNEL_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {c.v - a.v * b.v}; }
TUTTI_KERNEL_INLINE F32 min(F32 a, F32 b) { return {a.v < b.v ? a.v : b.v}; }
TUTTI_KERNEL_INLINE F32 max(F32 a, F32 b) { return {a.v > b.v ? a.v : b.v}; }
TUTTI_KERNEL_INLINE F32 sqrt(F32 a) { return {__builtin_sqrtf(a.v)}; }
TUTTI_KERNEL_INLINE F32 abs(F32 a) { return {__builtin_fabsf(a.v)}; }
TUTTI_KERNEL_INLINE F32 floor(F32 a) { return {__builtin_floorf(a.v)}; }
TUTTI_KERNEL_INLINE F32 ceil(F32 a) { return {__builtin_ceilf(a.v)}; }
TUTTI_KERNEL_INLINE F32 neg(F32 a) { return {-a.v}; }
TUTTI_KERNEL_INLINE F32 copysign(F32 a, F32 sign) { return {__builtin_copysignf(a.v, sign.v)}; }
TUTTI_KERNEL_INLINE float sum(F32 a) { return a.v; }
TUTTI_KERNEL_INLINE float max_lane(F32 a) { return a.v; }
TUTTI_KERNEL_INLINE float min_lane(F32 a) { return a.v; }

TUTTI_KERNEL_INLINE void deinterleave(F32 a, F32 b, F32& even, F32& odd) {
  even = a;
  odd = b;
}
TUTTI_KERNEL_INLINE void interleave(F32 even, F32 odd, F32& a, F32& b) {
  a = even;
  b = odd;
}

TUTTI_KERNEL_INLINE Mask less(F32 a, F32 b) { return {a.v < b.v}; }
TUTTI_KERNEL_INLINE Mask less_equal(F32 a, F32 b) { return {a.v <= b.v}; }
TUTTI_KERNEL_INLINE Mask equal(F32 a, F32 b) { return {a.v == b.v}; }
TUTTI_KERNEL_INLINE Mask not_equal(F32 a, F32 b) { return {a.v != b.v}; }
TUTTI_KERNEL_INLINE Mask less(I32 a, I32 b) { return {a.v < b.v}; }
TUTTI_KERNEL_INLINE Mask equal(I32 a, I32 b) { return {a.v == b.v}; }
TUTTI_KERNEL_INLINE bool any(Mask m) { return m.v; }
TUTTI_KERNEL_INLINE bool all(Mask m) { return m.v; }
TUTTI_KERNEL_INLINE F32 select(Mask m, F32 yes, F32 no) { return {m.v ? yes.v : no.v}; }
TUTTI_KERNEL_INLINE I32 select(Mask m, I32 yes, I32 no) { return {m.v ? yes.v : no.v}; }

TUTTI_KERNEL_INLINE I32 as_i32(F32 a) { return {std::bit_cast<std::int32_t>(a.v)}; }
TUTTI_KERNEL_INLINE F32 as_f32(I32 a) { return {std::bit_cast<float>(a.v)}; }
TUTTI_KERNEL_INLINE I32 to_i32(F32 a) {
  bool const fits = a.v >= -2147483648.0f && a.v < 2147483648.0f;
  return {fits ? static_cast<std::int32_t>(std::lrint(a.v)) : std::numeric_limits<std::int32_t>::min()};
}
TUTTI_KERNEL_INLINE F32 to_f32(I32 a) { return {static_cast<float>(a.v)}; }
TUTTI_KERNEL_INLINE std::uint32_t unsigned_of(I32 a) { return static_cast<std::uint32_t>(a.v); }
TUTTI_KERNEL_INLINE I32 signed_of(std::uint32_t a) { return {static_cast<std::int32_t>(a)}; }
TUTTI_KERNEL_INLINE I32 add(I32 a, I32 b) { return signed_of(unsigned_of(a) + unsigned_of(b)); }
TUTTI_KERNEL_INLINE I32 sub(I32 a, I32 b) { return signed_of(unsigned_of(a) - unsigned_of(b)); }
TUTTI_KERNEL_INLINE I32 mul(I32 a, I32 b) { return signed_of(unsigned_of(a) * unsigned_of(b)); }
TUTTI_KERNEL_INLINE I32 bit_and(I32 a, I32 b) { return {a.v & b.v}; }
TUTTI_KERNEL_INLINE I32 bit_or(I32 a, I32 b) { return {a.v | b.v}; }
TUTTI_KERNEL_INLINE I32 bit_xor(I32 a, I32 b) { return {a.v ^ b.v}; }
template <int N>
TUTTI_KERNEL_INLINE I32 shift_left(I32 a) {
  return signed_of(unsigned_of(a) << N);
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right(I32 a) {
  return {a.v >> N};
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right_logical(I32 a) {
  return signed_of(unsigned_of(a) >> N);
}

/// In two steps, so that one power of two never leaves the normal range: the first is exact, the second rounds once.
TUTTI_KERNEL_INLINE F32 scale(F32 a, F32 n) {
  I32 const whole = to_i32(n);
  I32 const half = shift_right<1>(whole);
  F32 const first = as_f32(shift_left<23>(add(half, set_i32(127))));
  F32 const second = as_f32(shift_left<23>(add(sub(whole, half), set_i32(127))));
  return mul(mul(a, first), second);
}

TUTTI_KERNEL_INLINE F32 dot2(F32 c, I32 a, I32 b) {
  I32 const upper = set_i32(static_cast<std::int32_t>(0xffff0000u));
  F32 const low = fma(as_f32(shift_left<16>(a)), as_f32(shift_left<16>(b)), c);
  return fma(as_f32(bit_and(a, upper)), as_f32(bit_and(b, upper)), low);
}
TUTTI_KERNEL_INLINE I32 dot2_i16(I32 c, I32 a, I32 b) {
  std::int32_t const low = static_cast<std::int16_t>(unsigned_of(a)) * static_cast<std::int16_t>(unsigned_of(b));
  return add(c, add(I32{low}, I32{(a.v >> 16) * (b.v >> 16)}));
}
TUTTI_KERNEL_INLINE I32 dot2_u8(I32 a, I32 b) {
  std::uint32_t sums = 0;
  for (int half = 0; half < 32; half += 16) {
    int sum = 0;
    for (int byte = half; byte < half + 16; byte += 8)
      sum += static_cast<std::uint8_t>(unsigned_of(a) >> byte) * static_cast<std::int8_t>(unsigned_of(b) >> byte);
    sums |= static_cast<std::uint32_t>(static_cast<std::uint16_t>(sum)) << half;
  }
  return {static_cast<std::int32_t>(sums)};
}
TUTTI_KERNEL_INLINE I32 add_i16(I32 a, I32 b) {
  std::uint32_t const low = (unsigned_of(a) + unsigned_of(b)) & 0xffffu;
  return {static_cast<std::int32_t>(low | ((unsigned_of(a) & 0xffff0000u) + (unsigned_of(b) & 0xffff0000u)))};
}
TUTTI_KERNEL_INLINE I32 dot4(I32 c, I32 a, I32 b) {
  std::int32_t total = 0;
  for (int byte = 0; byte < 4; ++byte)
    total += static_cast<std::int32_t>(static_cast<std::uint8_t>(unsigned_of(a) >> (8 * byte))) *
             static_cast<std::int8_t>(unsigned_of(b) >> (8 * byte));
  return add(c, {total});
}

}  // namespace tutti::isa::scalar
