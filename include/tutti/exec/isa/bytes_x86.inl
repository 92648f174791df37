// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The names of bytes.hpp with AVX2. Included by bytes.hpp alone, once for every level of x86: with AVX-512 the same
/// instructions have twice the registers, and with TUTTI_BYTES_VNNI four products are summed by one.

struct I8x32 {
  __m256i v;
};
struct I16x16 {
  __m256i v;
};
struct I32x8 {
  __m256i v;
};
struct F32x8 {
  __m256 v;
};

TUTTI_KERNEL_INLINE I8x32 load_bytes(void const* p) { return {_mm256_loadu_si256(static_cast<__m256i const*>(p))}; }
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I8x32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
TUTTI_KERNEL_INLINE I8x32 nibbles(void const* p) {
  __m256i const both = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<__m128i const*>(p)));
  __m256i const down = _mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
  return {_mm256_and_si256(down, _mm256_set1_epi8(15))};
}
TUTTI_KERNEL_INLINE I8x32 bits(I8x32 a, int shift, int mask) {
  __m256i const moved = shift < 0 ? _mm256_slli_epi16(a.v, -shift) : _mm256_srli_epi16(a.v, shift);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)))};
}
TUTTI_KERNEL_INLINE I8x32 join(I8x32 a, I8x32 b) { return {_mm256_or_si256(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I8x32 minus(I8x32 a, int b) {
  return {_mm256_sub_epi8(a.v, _mm256_set1_epi8(static_cast<char>(b)))};
}
TUTTI_KERNEL_INLINE I8x32 sixteens(std::uint8_t const* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, 4);
  __m256i const place = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  __m256i const bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  __m256i const spread = _mm256_shuffle_epi8(_mm256_set1_epi32(word), place);
  return {_mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16))};
}
TUTTI_KERNEL_INLINE I8x32 look_up(std::int8_t const* table, I8x32 places) {
  __m128i const values = _mm_loadu_si128(reinterpret_cast<__m128i const*>(table));
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), places.v)};
}

TUTTI_KERNEL_INLINE I16x16 dot2_unsigned(I8x32 w, I8x32 x) { return {_mm256_maddubs_epi16(w.v, x.v)}; }
TUTTI_KERNEL_INLINE I16x16 dot2_signed(I8x32 w, I8x32 x) {
  return {_mm256_maddubs_epi16(_mm256_abs_epi8(w.v), _mm256_sign_epi8(x.v, w.v))};
}
TUTTI_KERNEL_INLINE I32x8 dot2(I16x16 a, I16x16 b) { return {_mm256_madd_epi16(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I32x8 sum, I8x32 w, I8x32 x) {
#ifdef TUTTI_BYTES_VNNI
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(w.v), "vm"(x.v));  // see dot4 in avx512.inl
  return sum;
#else
  return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(dot2_unsigned(w, x).v, _mm256_set1_epi16(1)))};
#endif
}
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I8x32 w, I8x32 x) { return dot4_unsigned({_mm256_setzero_si256()}, w, x); }
TUTTI_KERNEL_INLINE I32x8 dot4_signed(I8x32 w, I8x32 x) {
  return dot4_unsigned({_mm256_abs_epi8(w.v)}, {_mm256_sign_epi8(x.v, w.v)});
}

TUTTI_KERNEL_INLINE I16x16 load_shorts(std::int16_t const* p) {
  return {_mm256_loadu_si256(reinterpret_cast<__m256i const*>(p))};
}
TUTTI_KERNEL_INLINE void store(std::int16_t* p, I16x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
TUTTI_KERNEL_INLINE I16x16 even_odd(void const* p) {
  __m128i const order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return {_mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_loadu_si128(static_cast<__m128i const*>(p)), order))};
}
TUTTI_KERNEL_INLINE I16x16 twice(std::uint64_t bytes) {
  return {_mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(bytes))))};
}
TUTTI_KERNEL_INLINE I16x16 minus(I16x16 a, int b) {
  return {_mm256_sub_epi16(a.v, _mm256_set1_epi16(static_cast<short>(b)))};
}
TUTTI_KERNEL_INLINE I16x16 low_nibbles(I16x16 a) { return {_mm256_and_si256(a.v, _mm256_set1_epi16(15))}; }
TUTTI_KERNEL_INLINE I16x16 high_nibbles(I16x16 a) { return low_nibbles({_mm256_srli_epi16(a.v, 4)}); }
TUTTI_KERNEL_INLINE I16x16 spread(I16x16 a, int part) {
  return {_mm256_shuffle_epi8(a.v, _mm256_set1_epi16(static_cast<short>(0x0100 + 0x0202 * part)))};
}

TUTTI_KERNEL_INLINE I32x8 add(I32x8 a, I32x8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
TUTTI_KERNEL_INLINE I32x8 minus_times(I32x8 a, I32x8 b, int shift) {
  return {_mm256_sub_epi32(a.v, _mm256_slli_epi32(b.v, shift))};
}
TUTTI_KERNEL_INLINE I32x8 shift_left(I32x8 a, int shift) { return {_mm256_slli_epi32(a.v, shift)}; }
TUTTI_KERNEL_INLINE F32x8 to_float(I32x8 a) { return {_mm256_cvtepi32_ps(a.v)}; }
TUTTI_KERNEL_INLINE I32x8 broadcast(std::int32_t const* p) { return {_mm256_set1_epi32(*p)}; }
TUTTI_KERNEL_INLINE F32x8 broadcast(float const* p) { return {_mm256_broadcast_ss(p)}; }
TUTTI_KERNEL_INLINE F32x8 broadcast(float16 const* p) {
  return {_mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(p->bits)))};
}
TUTTI_KERNEL_INLINE F32x8 plus(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32x8 times(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32x8 plus_product(F32x8 sum, F32x8 a, F32x8 b) { return {_mm256_fmadd_ps(a.v, b.v, sum.v)}; }
TUTTI_KERNEL_INLINE F32x8 minus_product(F32x8 sum, F32x8 a, F32x8 b) { return {_mm256_fnmadd_ps(a.v, b.v, sum.v)}; }
TUTTI_KERNEL_INLINE float total(F32x8 a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

#include <tutti/exec/isa/bytes_pairs.inl>
