// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// AVX-512 F, BW, DQ, VL: 16 lanes; and the level with BF16 and VNNI, which differs in dot2 and dot4 alone.
/// Included by levels.hpp alone.

namespace tutti::isa::avx512 {

struct F32 {
  static constexpr int level = 2;
  static constexpr int lanes = 16;
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct F64 {
  static constexpr int lanes = 8;
  __m512d v;
};
struct Mask {
  __mmask16 v;
};

TUTTI_KERNEL_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
TUTTI_KERNEL_INLINE F32 set(float x) { return {_mm512_set1_ps(x)}; }
TUTTI_KERNEL_INLINE I32 set_i32(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
/// A bit for each lane below n, n in [0, 16].
TUTTI_KERNEL_INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

TUTTI_KERNEL_INLINE F32 load(float const* p) { return {_mm512_loadu_ps(p)}; }
TUTTI_KERNEL_INLINE F32 load_partial(float const* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
TUTTI_KERNEL_INLINE void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
TUTTI_KERNEL_INLINE void store_partial(float* p, F32 x, int n) { _mm512_mask_storeu_ps(p, first(n), x.v); }
TUTTI_KERNEL_INLINE I32 load(std::int32_t const* p) { return {_mm512_loadu_si512(p)}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::int32_t const* p, int n) { return {_mm512_maskz_loadu_epi32(first(n), p)}; }
TUTTI_KERNEL_INLINE void store(std::int32_t* p, I32 x) { _mm512_storeu_si512(p, x.v); }
TUTTI_KERNEL_INLINE void store_partial(std::int32_t* p, I32 x, int n) { _mm512_mask_storeu_epi32(p, first(n), x.v); }

/// Four words.
TUTTI_KERNEL_INLINE __m128 load_words(void const* p) { return _mm_loadu_ps(static_cast<float const*>(p)); }
/// Quarter rows r, r + 4, r + 8, r + 12 share a register, so that one transposition of 4 by 4 within 128-bit lanes
/// finishes.
template <class T>
TUTTI_KERNEL_INLINE void load_transposed(T const* p, std::int64_t stride, int rows, F32 (&out)[4]) {
  __m512 t[4];
  TUTTI_UNROLL
  for (int r = 0; r < 4; ++r) {
    __m512 x = _mm512_castps128_ps512(load_words(p + (r < rows ? r : rows - 1) * stride));
    x = _mm512_insertf32x4(x, load_words(p + (r + 4 < rows ? r + 4 : rows - 1) * stride), 1);
    x = _mm512_insertf32x4(x, load_words(p + (r + 8 < rows ? r + 8 : rows - 1) * stride), 2);
    t[r] = _mm512_insertf32x4(x, load_words(p + (r + 12 < rows ? r + 12 : rows - 1) * stride), 3);
  }
  __m512 const a = _mm512_unpacklo_ps(t[0], t[1]), b = _mm512_unpackhi_ps(t[0], t[1]);
  __m512 const c = _mm512_unpacklo_ps(t[2], t[3]), d = _mm512_unpackhi_ps(t[2], t[3]);
  out[0].v = _mm512_shuffle_ps(a, c, 0x44);
  out[1].v = _mm512_shuffle_ps(a, c, 0xee);
  out[2].v = _mm512_shuffle_ps(b, d, 0x44);
  out[3].v = _mm512_shuffle_ps(b, d, 0xee);
}

TUTTI_KERNEL_INLINE __m128i load_bytes(void const* p) { return _mm_loadu_si128(static_cast<__m128i const*>(p)); }
TUTTI_KERNEL_INLINE __m128i load_bytes(void const* p, int n) { return _mm_maskz_loadu_epi8(first(n), p); }
TUTTI_KERNEL_INLINE I32 load(std::int8_t const* p) { return {_mm512_cvtepi8_epi32(load_bytes(p))}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::int8_t const* p, int n) { return {_mm512_cvtepi8_epi32(load_bytes(p, n))}; }
TUTTI_KERNEL_INLINE I32 load(std::uint8_t const* p) { return {_mm512_cvtepu8_epi32(load_bytes(p))}; }
TUTTI_KERNEL_INLINE I32 load_partial(std::uint8_t const* p, int n) { return {_mm512_cvtepu8_epi32(load_bytes(p, n))}; }
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I32 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
TUTTI_KERNEL_INLINE void store_partial(std::int8_t* p, I32 x, int n) {
  _mm_mask_storeu_epi8(p, first(n), _mm512_cvtepi32_epi8(x.v));
}

TUTTI_KERNEL_INLINE F64 set_f64(double x) { return {_mm512_set1_pd(x)}; }
TUTTI_KERNEL_INLINE __mmask8 first_f64(int n) { return static_cast<__mmask8>((1u << n) - 1u); }
TUTTI_KERNEL_INLINE F64 load(double const* p) { return {_mm512_loadu_pd(p)}; }
TUTTI_KERNEL_INLINE F64 load_partial(double const* p, int n) { return {_mm512_maskz_loadu_pd(first_f64(n), p)}; }
TUTTI_KERNEL_INLINE void store(double* p, F64 x) { _mm512_storeu_pd(p, x.v); }
TUTTI_KERNEL_INLINE void store_partial(double* p, F64 x, int n) { _mm512_mask_storeu_pd(p, first_f64(n), x.v); }
TUTTI_KERNEL_INLINE F64 mul(F64 a, F64 b) { return {_mm512_mul_pd(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F64 fma(F64 a, F64 b, F64 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
/// Half rows r and r + 4 share a register.
TUTTI_KERNEL_INLINE void load_transposed(double const* p, std::int64_t stride, int rows, F64 (&out)[4]) {
  __m512d t[4];
  TUTTI_UNROLL
  for (int r = 0; r < 4; ++r) {
    __m512d const low = _mm512_castpd256_pd512(_mm256_loadu_pd(p + (r < rows ? r : rows - 1) * stride));
    t[r] = _mm512_insertf64x4(low, _mm256_loadu_pd(p + (r + 4 < rows ? r + 4 : rows - 1) * stride), 1);
  }
  __m512d const a = _mm512_unpacklo_pd(t[0], t[1]), b = _mm512_unpackhi_pd(t[0], t[1]);
  __m512d const c = _mm512_unpacklo_pd(t[2], t[3]), d = _mm512_unpackhi_pd(t[2], t[3]);
  __m512i const left = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  __m512i const right = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  out[0].v = _mm512_permutex2var_pd(a, left, c);
  out[1].v = _mm512_permutex2var_pd(b, left, d);
  out[2].v = _mm512_permutex2var_pd(a, right, c);
  out[3].v = _mm512_permutex2var_pd(b, right, d);
}

TUTTI_KERNEL_INLINE F32 widen_bfloat16(__m256i x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))};
}
/// In integers: the instruction of AVX512_BF16 would flush subnormals.
TUTTI_KERNEL_INLINE __m256i narrow_bfloat16(F32 x) {
  __m512i const u = _mm512_castps_si512(x.v);
  __m512i const upper = _mm512_srli_epi32(u, 16);
  __m512i const odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  __m512i const near = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 const nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(near, nan, upper, _mm512_set1_epi32(0x40)));
}
TUTTI_KERNEL_INLINE F32 load(bfloat16 const* p) {
  return widen_bfloat16(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p)));
}
TUTTI_KERNEL_INLINE F32 load_partial(bfloat16 const* p, int n) {
  return widen_bfloat16(_mm256_maskz_loadu_epi16(first(n), p));
}
TUTTI_KERNEL_INLINE void store(bfloat16* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bfloat16(x));
}
TUTTI_KERNEL_INLINE void store_partial(bfloat16* p, F32 x, int n) {
  _mm256_mask_storeu_epi16(p, first(n), narrow_bfloat16(x));
}
TUTTI_KERNEL_INLINE __m256i narrow_float16(F32 x) {
  return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TUTTI_KERNEL_INLINE F32 set(float16 x) {
  return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(x.bits)))};
}
TUTTI_KERNEL_INLINE F32 load(float16 const* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p)))};
}
TUTTI_KERNEL_INLINE F32 load_partial(float16 const* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))};
}
TUTTI_KERNEL_INLINE void store(float16* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_float16(x));
}
TUTTI_KERNEL_INLINE void store_partial(float16* p, F32 x, int n) {
  _mm256_mask_storeu_epi16(p, first(n), narrow_float16(x));
}

TUTTI_KERNEL_INLINE F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TUTTI_KERNEL_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
TUTTI_KERNEL_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32 sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }
TUTTI_KERNEL_INLINE F32 abs(F32 a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
TUTTI_KERNEL_INLINE F32 floor(F32 a) { return {_mm512_roundscale_ps(a.v, 9)}; }   // down, no exception
TUTTI_KERNEL_INLINE F32 ceil(F32 a) { return {_mm512_roundscale_ps(a.v, 10)}; }  // up
TUTTI_KERNEL_INLINE F32 neg(F32 a) { return {_mm512_xor_ps(_mm512_set1_ps(-0.0f), a.v)}; }
TUTTI_KERNEL_INLINE F32 copysign(F32 a, F32 sign) {
  return {_mm512_or_ps(abs(a).v, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign.v))};
}
TUTTI_KERNEL_INLINE float sum(F32 a) {
  __m256 const half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TUTTI_KERNEL_INLINE float max_lane(F32 a) {
  __m256 const half = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
TUTTI_KERNEL_INLINE float min_lane(F32 a) {
  __m256 const half = _mm256_min_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 x = _mm_min_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_min_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_min_ss(x, _mm_shuffle_ps(x, x, 1)));
}

TUTTI_KERNEL_INLINE void deinterleave(F32 a, F32 b, F32& even, F32& odd) {
  __m512i const first_even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  __m512i const first_odd = _mm512_add_epi32(first_even, _mm512_set1_epi32(1));
  even = {_mm512_permutex2var_ps(a.v, first_even, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, first_odd, b.v)};
}
TUTTI_KERNEL_INLINE void interleave(F32 even, F32 odd, F32& a, F32& b) {
  __m512i const low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  __m512i const high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  a = {_mm512_permutex2var_ps(even.v, low, odd.v)};
  b = {_mm512_permutex2var_ps(even.v, high, odd.v)};
}

TUTTI_KERNEL_INLINE Mask less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
TUTTI_KERNEL_INLINE Mask less_equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
TUTTI_KERNEL_INLINE Mask equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
TUTTI_KERNEL_INLINE Mask not_equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
TUTTI_KERNEL_INLINE Mask less(I32 a, I32 b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
TUTTI_KERNEL_INLINE Mask equal(I32 a, I32 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
TUTTI_KERNEL_INLINE bool any(Mask m) { return m.v != 0; }
TUTTI_KERNEL_INLINE bool all(Mask m) { return m.v == 0xffff; }
TUTTI_KERNEL_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
TUTTI_KERNEL_INLINE I32 select(Mask m, I32 yes, I32 no) { return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)}; }

TUTTI_KERNEL_INLINE I32 as_i32(F32 a) { return {_mm512_castps_si512(a.v)}; }
TUTTI_KERNEL_INLINE F32 as_f32(I32 a) { return {_mm512_castsi512_ps(a.v)}; }
TUTTI_KERNEL_INLINE I32 to_i32(F32 a) { return {_mm512_cvtps_epi32(a.v)}; }
TUTTI_KERNEL_INLINE F32 to_f32(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
TUTTI_KERNEL_INLINE I32 add(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 sub(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 mul(I32 a, I32 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_and(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_or(I32 a, I32 b) { return {_mm512_or_si512(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 bit_xor(I32 a, I32 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int N>
TUTTI_KERNEL_INLINE I32 shift_left(I32 a) {
  return I32{_mm512_slli_epi32(a.v, N)};
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right(I32 a) {
  return I32{_mm512_srai_epi32(a.v, N)};
}
template <int N>
TUTTI_KERNEL_INLINE I32 shift_right_logical(I32 a) {
  return I32{_mm512_srli_epi32(a.v, N)};
}

TUTTI_KERNEL_INLINE F32 scale(F32 a, F32 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

TUTTI_KERNEL_INLINE I32 dot2_i16(I32 c, I32 a, I32 b) { return {_mm512_add_epi32(c.v, _mm512_madd_epi16(a.v, b.v))}; }
TUTTI_KERNEL_INLINE I32 dot2_u8(I32 a, I32 b) { return {_mm512_maddubs_epi16(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32 add_i16(I32 a, I32 b) { return {_mm512_add_epi16(a.v, b.v)}; }

}  // namespace tutti::isa::avx512

/// Outside the namespace of F32, so that argument-dependent lookup does not find them beside those of avx512_bf16.
namespace tutti::isa::avx512_dots {

using namespace tutti::isa::avx512;

TUTTI_KERNEL_INLINE F32 dot2(F32 c, I32 a, I32 b) {
  I32 const upper = set_i32(static_cast<std::int32_t>(0xffff0000u));
  F32 const low = fma(as_f32(shift_left<16>(a)), as_f32(shift_left<16>(b)), c);
  return fma(as_f32(bit_and(a, upper)), as_f32(bit_and(b, upper)), low);
}
/// Even and odd bytes apart: vpmaddubsw would saturate.
TUTTI_KERNEL_INLINE I32 dot4(I32 c, I32 a, I32 b) {
  __m512i const even = _mm512_madd_epi16(_mm512_and_si512(a.v, _mm512_set1_epi16(0xff)),
                                         _mm512_srai_epi16(_mm512_slli_epi16(b.v, 8), 8));
  __m512i const odd = _mm512_madd_epi16(_mm512_srli_epi16(a.v, 8), _mm512_srai_epi16(b.v, 8));
  return {_mm512_add_epi32(c.v, _mm512_add_epi32(even, odd))};
}

}  // namespace tutti::isa::avx512_dots

namespace tutti::isa::avx512 {
using namespace tutti::isa::avx512_dots;
}

namespace tutti::isa::avx512_bf16 {

using namespace tutti::isa::avx512;

inline constexpr bool has_dot2 = true, has_dot4 = true;
TUTTI_TARGET_AVX512_BF16 TUTTI_ALWAYS_INLINE F32 pack_bfloat16(F32 low, F32 high) {
  // One conversion puts the sixteen of `low` before those of `high`.
  alignas(64) static constexpr std::uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  auto const both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v));
  return {_mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(order), both))};
}

/// One vdpbf16ps: subnormal inputs and results count as zero, products are rounded in pairs.
TUTTI_TARGET_AVX512_BF16 TUTTI_ALWAYS_INLINE F32 dot2(F32 c, I32 a, I32 b) {
  return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
/// One vpdpbusd. In assembly for GCC, whose register allocation copies the accumulator of the intrinsic.
TUTTI_TARGET_AVX512_BF16 TUTTI_ALWAYS_INLINE I32 dot4(I32 c, I32 a, I32 b) {
#if defined(__GNUC__) && !defined(__clang__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(c.v) : "v"(a.v), "vm"(b.v));
  return c;
#else
  return {_mm512_dpbusd_epi32(c.v, a.v, b.v)};
#endif
}

}  // namespace tutti::isa::avx512_bf16
