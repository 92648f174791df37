// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// AVX2 with FMA and F16C: 8 lanes. Included by levels.hpp alone.

namespace tutti::isa::avx2 {

struct F32 {
  static constexpr int level = 1;
  static constexpr int lanes = 8;
  __m256 v;
};
struct I32 {
  __m256i v;
};
struct F64 {
  static constexpr int lanes = 4;
  __m256d v;
};
struct Mask {
  __m256 v;
};

TUTTI_KERNEL_INLINE F32 zero() { return {_mm256_setzero_ps()}; }
TUTTI_KERNEL_INLINE F32 set(float x) { return {_mm256_set1_ps(x)}; }
TUTTI_KERNEL_INLINE I32 set_i32(std::int32_t x) { return {_mm256_set1_epi32(x)}; }
/// All bits set in lanes below n.
TUTTI_KERNEL_INLINE __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TUTTI_KERNEL_INLINE F32 load(float const* p) { return {_mm256_loadu_ps(p)}; }
TUTTI_KERNEL_INLINE F32 load_partial(float const* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
TUTTI_KERNEL_INLINE void store(float* p, F32 x) { _mm256_storeu_ps(p, x.v); }
TUTTI_KERNEL_INLINE void store_partial(float* p, F32 x, int n) { _mm256_maskstore_ps(p, first(n), x.v); }
TUTTI_KERNEL_INLINE I32 load(std::int32_t const* p) {
  return {_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p))};
}
TUTTI_KERNEL_INLINE I32 load_partial(std::int32_t const* p, int n) { return {_mm256_maskload_epi32(p, first(n))}; }
TUTTI_KERNEL_INLINE void store(std::int32_t* p, I32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.v); }
TUTTI_KERNEL_INLINE void store_partial(std::int32_t* p, I32 x, int n) { _mm256_maskstore_epi32(p, first(n), x.v); }

/// Four words.
TUTTI_KERNEL_INLINE __m128 load_words(void const* p) { return _mm_loadu_ps(static_cast<float const*>(p)); }
/// Quarter rows r and r + 4 share a register, so that one transposition of 4 by 4 within 128-bit lanes finishes.
template <class T>
TUTTI_KERNEL_INLINE void load_transposed(T const* p, std::int64_t stride, int rows, F32 (&out)[4]) {
  __m256 t[4];
  TUTTI_UNROLL
  for (int r = 0; r < 4; ++r) {
    __m128 const low = load_words(p + (r < rows ? r : rows - 1) * stride);
    t[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(low),
                                load_words(p + (r + 4 < rows ? r + 4 : rows - 1) * stride), 1);
  }
  __m256 const a = _mm256_unpacklo_ps(t[0], t[1]), b = _mm256_unpackhi_ps(t[0], t[1]);
  __m256 const c = _mm256_unpacklo_ps(t[2], t[3]), d = _mm256_unpackhi_ps(t[2], t[3]);
  out[0].v = _mm256_shuffle_ps(a, c, 0x44);
  out[1].v = _mm256_shuffle_ps(a, c, 0xee);
  out[2].v = _mm256_shuffle_ps(b, d, 0x44);
  out[3].v = _mm256_shuffle_ps(b, d, 0xee);
}

/// Eight bytes, the first n of them from memory.
TUTTI_KERNEL_INLINE __m128i load_bytes(void const* p, int n) {
  if (n >= 8) return _mm_loadl_epi64(static_cast<__m128i const*>(p));
  alignas(16) std::uint8_t part[16] = {};
  __builtin_memcpy(part, p, static_cast<std::size_t>(n < 0 ? 0 : n));
  return _mm_load_si128(reinterpret_cast<__m128i const*>(part));
}
TUTTI_KERNEL_INLINE I32 load(std::int8_t const* p) { return {_mm256_cvtepi8_epi32(load_bytes(p, 8))}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::int8_t const* p, int n) { return {_mm256_cvtepi8_epi32(load_bytes(p, n))}; }
TUTTI_KERNEL_INLINE I32 load(std::uint8_t const* p) { return {_mm256_cvtepu8_epi32(load_bytes(p, 8))}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::uint8_t const* p, int n) { return {_mm256_cvtepu8_epi32(load_bytes(p, n))}; }
TUTTI_KERNEL_INLINE void store_partial(std::int8_t* p, I32 x, int n) {
  // The low byte of each lane into the first four bytes of its half.
  __m256i const chosen = _mm256_shuffle_epi8(x.v, _mm256_set1_epi32(0x0c080400));
  __m128i const bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
  std::int64_t const packed = _mm_cvtsi128_si64(bytes);
  __builtin_memcpy(p, &packed, static_cast<std::size_t>(n >= 8 ? 8 : n < 0 ? 0 : n));
}
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I32 x) { store_partial(p, x, 8); }

TUTTI_KERNEL_INLINE F64 set_f64(double x) { return {_mm256_set1_pd(x)}; }
TUTTI_KERNEL_INLINE __m256i first_f64(int n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
TUTTI_KERNEL_INLINE F64 load(double const* p) { return {_mm256_loadu_pd(p)}; }
TUTTI_KERNEL_INLINE F64 load_partial(double const* p, int n) { return {_mm256_maskload_pd(p, first_f64(n))}; }
TUTTI_KERNEL_INLINE void store(double* p, F64 x) { _mm256_storeu_pd(p, x.v); }
TUTTI_KERNEL_INLINE void store_partial(double* p, F64 x, int n) { _mm256_maskstore_pd(p, first_f64(n), x.v); }
TUTTI_KERNEL_INLINE F64 mul(F64 a, F64 b) { return {_mm256_mul_pd(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F64 fma(F64 a, F64 b, F64 c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
TUTTI_KERNEL_INLINE void load_transposed(double const* p, std::int64_t stride, int rows, F64 (&out)[4]) {
  __m256d t[4];
  TUTTI_UNROLL
  for (int r = 0; r < 4; ++r) t[r] = _mm256_loadu_pd(p + (r < rows ? r : rows - 1) * stride);
  __m256d const a = _mm256_unpacklo_pd(t[0], t[1]), b = _mm256_unpackhi_pd(t[0], t[1]);
  __m256d const c = _mm256_unpacklo_pd(t[2], t[3]), d = _mm256_unpackhi_pd(t[2], t[3]);
  out[0].v = _mm256_permute2f128_pd(a, c, 0x20);
  out[1].v = _mm256_permute2f128_pd(b, d, 0x20);
  out[2].v = _mm256_permute2f128_pd(a, c, 0x31);
  out[3].v = _mm256_permute2f128_pd(b, d, 0x31);
}

/// Eight 16-bit elements, the first n of them from memory.
TUTTI_KERNEL_INLINE __m128i load_halves(void const* p, int n) {
  if (n >= 8) return _mm_loadu_si128(static_cast<__m128i const*>(p));
  alignas(16) std::uint16_t part[8] = {};
  __builtin_memcpy(part, p, static_cast<std::size_t>(n < 0 ? 0 : n) * 2);
  return _mm_load_si128(reinterpret_cast<__m128i const*>(part));
}
TUTTI_KERNEL_INLINE void store_halves(void* p, __m128i x, int n) {
  if (n >= 8) return _mm_storeu_si128(static_cast<__m128i*>(p), x);
  alignas(16) std::uint16_t part[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(part), x);
  __builtin_memcpy(p, part, static_cast<std::size_t>(n < 0 ? 0 : n) * 2);
}
TUTTI_KERNEL_INLINE F32 widen_bfloat16(__m128i x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))};
}
TUTTI_KERNEL_INLINE __m128i narrow_bfloat16(F32 x) {
  __m256i const u = _mm256_castps_si256(x.v);
  __m256i const odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i const near = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i const quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  __m256i const nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  __m256i const all = _mm256_blendv_epi8(near, quiet, nan);
  __m256i const packed = _mm256_packus_epi32(all, all);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
TUTTI_KERNEL_INLINE F32 load(bfloat16 const* p) { return widen_bfloat16(load_halves(p, 8)); }
TUTTI_KERNEL_INLINE F32 load_partial(bfloat16 const* p, int n) { return widen_bfloat16(load_halves(p, n)); }
TUTTI_KERNEL_INLINE void store(bfloat16* p, F32 x) { store_halves(p, narrow_bfloat16(x), 8); }
TUTTI_KERNEL_INLINE void store_partial(bfloat16* p, F32 x, int n) { store_halves(p, narrow_bfloat16(x), n); }
TUTTI_KERNEL_INLINE F32 set(float16 x) { return {_mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(x.bits)))}; }
TUTTI_KERNEL_INLINE F32 load(float16 const* p) { return {_mm256_cvtph_ps(load_halves(p, 8))}; }
TUTTI_KERNEL_INLINE F32 load_partial(float16 const* p, int n) { return {_mm256_cvtph_ps(load_halves(p, n))}; }
TUTTI_KERNEL_INLINE void store(float16* p, F32 x) {
  store_halves(p, _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 8);
}
TUTTI_KERNEL_INLINE void store_partial(float16* p, F32 x, int n) {
  store_halves(p, _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

TUTTI_KERNEL_INLINE F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
TUTTI_KERNEL_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
TUTTI_KERNEL_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.v)}; }
TUTTI_KERNEL_INLINE F32 abs(F32 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
TUTTI_KERNEL_INLINE F32 floor(F32 a) { return {_mm256_floor_ps(a.v)}; }
TUTTI_KERNEL_INLINE F32 ceil(F32 a) { return {_mm256_ceil_ps(a.v)}; }
TUTTI_KERNEL_INLINE F32 neg(F32 a) { return {_mm256_xor_ps(_mm256_set1_ps(-0.0f), a.v)}; }
TUTTI_KERNEL_INLINE F32 copysign(F32 a, F32 sign) {
  return {_mm256_or_ps(abs(a).v, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign.v))};
}
TUTTI_KERNEL_INLINE float sum(F32 a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TUTTI_KERNEL_INLINE float max_lane(F32 a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TUTTI_KERNEL_INLINE float min_lane(F32 a) {
  __m128 x = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_min_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_min_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/// In each 128-bit lane first, then quarters to their places.
TUTTI_KERNEL_INLINE void deinterleave(F32 a, F32 b, F32& even, F32& odd) {
  __m256d const e = _mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0x88));
  __m256d const o = _mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0xdd));
  even = {_mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xd8))};
  odd = {_mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xd8))};
}
TUTTI_KERNEL_INLINE void interleave(F32 even, F32 odd, F32& a, F32& b) {
  __m256 const low = _mm256_unpacklo_ps(even.v, odd.v), high = _mm256_unpackhi_ps(even.v, odd.v);
  a = {_mm256_permute2f128_ps(low, high, 0x20)};
  b = {_mm256_permute2f128_ps(low, high, 0x31)};
}

TUTTI_KERNEL_INLINE Mask less(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
TUTTI_KERNEL_INLINE Mask less_equal(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
TUTTI_KERNEL_INLINE Mask equal(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
TUTTI_KERNEL_INLINE Mask not_equal(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)}; }
TUTTI_KERNEL_INLINE Mask less(I32 a, I32 b) { return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.v, a.v))}; }
TUTTI_KERNEL_INLINE Mask equal(I32 a, I32 b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))}; }
TUTTI_KERNEL_INLINE bool any(Mask m) { return _mm256_movemask_ps(m.v) != 0; }
TUTTI_KERNEL_INLINE bool all(Mask m) { return _mm256_movemask_ps(m.v) == 0xff; }
TUTTI_KERNEL_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
TUTTI_KERNEL_INLINE I32 select(Mask m, I32 yes, I32 no) {
  return {_mm256_blendv_epi8(no.v, yes.v, _mm256_castps_si256(m.v))};
}

TUTTI_KERNEL_INLINE I32 as_i32(F32 a) { return {_mm256_castps_si256(a.v)}; }
TUTTI_KERNEL_INLINE F32 as_f32(I32 a) { return {_mm256_castsi256_ps(a.v)}; }
TUTTI_KERNEL_INLINE I32 to_i32(F32 a) { return {_mm256_cvtps_epi32(a.v)}; }
TUTTI_KERNEL_INLINE F32 to_f32(I32 a) { return {_mm256_cvtepi32_ps(a.v)}; }
TUTTI_KERNEL_INLINE I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 mul(I32 a, I32 b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_and(I32 a, I32 b) { return {_mm256_and_si256(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_or(I32 a, I32 b) { return {_mm256_or_si256(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_xor(I32 a, I32 b) { return {_mm256_xor_si256(a.v, b.v)}; }
template <int N>
TUTTI_KERNEL_INLINE I32 shift_left(I32 a) {
  return I32{_mm256_slli_epi32(a.v, N)};
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right(I32 a) {
  return I32{_mm256_srai_epi32(a.v, N)};
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right_logical(I32 a) {
  return I32{_mm256_srli_epi32(a.v, N)};
}

/// In two steps, so that one power of two never leaves the normal range: the first is exact, the second rounds once.
TUTTI_KERNEL_INLINE F32 scale(F32 a, F32 n) {
  I32 const whole = to_i32(n);
  I32 const half = shift_right<1>(whole);
  F32 const first_power = as_f32(shift_left<23>(add(half, set_i32(127))));
  F32 const second_power = as_f32(shift_left<23>(add(sub(whole, half), set_i32(127))));
  return mul(mul(a, first_power), second_power);
}

TUTTI_KERNEL_INLINE F32 dot2(F32 c, I32 a, I32 b) {
  I32 const upper = set_i32(static_cast<std::int32_t>(0xffff0000u));
  F32 const low = fma(as_f32(shift_left<16>(a)), as_f32(shift_left<16>(b)), c);
  return fma(as_f32(bit_and(a, upper)), as_f32(bit_and(b, upper)), low);
}
TUTTI_KERNEL_INLINE I32 dot2_i16(I32 c, I32 a, I32 b) { return {_mm256_add_epi32(c.v, _mm256_madd_epi16(a.v, b.v))}; }
TUTTI_KERNEL_INLINE I32 dot2_u8(I32 a, I32 b) { return {_mm256_maddubs_epi16(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 add_i16(I32 a, I32 b) { return {_mm256_add_epi16(a.v, b.v)}; }
/// Even and odd bytes apart: vpmaddubsw would saturate.
TUTTI_KERNEL_INLINE I32 dot4(I32 c, I32 a, I32 b) {
  __m256i const even = _mm256_madd_epi16(_mm256_and_si256(a.v, _mm256_set1_epi16(0xff)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(b.v, 8), 8));
  __m256i const odd = _mm256_madd_epi16(_mm256_srli_epi16(a.v, 8), _mm256_srai_epi16(b.v, 8));
  return {_mm256_add_epi32(c.v, _mm256_add_epi32(even, odd))};
}

}  // namespace tutti::isa::avx2
