// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Pairs of the vectors of bytes.hpp, side by side: registers of 512 bits where TUTTI_BYTES_VNNI is defined, else two
/// of them. Included at the end of a level's names.

#ifdef TUTTI_BYTES_VNNI

inline constexpr int copies = 8;
struct I8x64 {
  __m512i v;
};
struct I32x16 {
  __m512i v;
};
struct F32x16 {
  __m512 v;
};
TUTTI_KERNEL_INLINE I8x64 both(I8x32 low, I8x32 high) {
  return {_mm512_inserti64x4(_mm512_castsi256_si512(low.v), high.v, 1)};
}
TUTTI_KERNEL_INLINE F32x16 both(F32x8 low, F32x8 high) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(low.v), high.v, 1)};
}
TUTTI_KERNEL_INLINE F32x8 low_half(F32x16 a) { return {_mm512_castps512_ps256(a.v)}; }
TUTTI_KERNEL_INLINE F32x8 high_half(F32x16 a) { return {_mm512_extractf32x8_ps(a.v, 1)}; }
TUTTI_KERNEL_INLINE I8x64 load_pair(void const* p) { return {_mm512_loadu_si512(p)}; }
TUTTI_KERNEL_INLINE F32x16 eights(float const* p) { return {_mm512_loadu_ps(p)}; }
TUTTI_KERNEL_INLINE I32x16 eights(std::int32_t const* p) { return {_mm512_loadu_si512(p)}; }
TUTTI_KERNEL_INLINE I32x16 shift_left(I32x16 a, int shift) {
  return {_mm512_slli_epi32(a.v, static_cast<unsigned>(shift))};
}
TUTTI_KERNEL_INLINE I32x16 dot4_unsigned(I32x16 sum, I8x64 w, I8x64 x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(w.v), "vm"(x.v));  // see dot4 in avx512.inl
  return sum;
}
TUTTI_KERNEL_INLINE I32x16 dot4_unsigned(I8x64 w, I8x64 x) { return dot4_unsigned({_mm512_setzero_si512()}, w, x); }
TUTTI_KERNEL_INLINE I32x16 dot4_signed(I8x64 w, I8x64 x) {
  __m512i const turned = _mm512_mask_sub_epi8(x.v, _mm512_movepi8_mask(w.v), _mm512_setzero_si512(), x.v);
  return dot4_unsigned({_mm512_abs_epi8(w.v)}, {turned});
}
TUTTI_KERNEL_INLINE F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
TUTTI_KERNEL_INLINE F32x16 times(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TUTTI_KERNEL_INLINE F32x16 plus_product(F32x16 sum, F32x16 a, F32x16 b) { return {_mm512_fmadd_ps(a.v, b.v, sum.v)}; }

#else

inline constexpr int copies = 1;
struct I8x64 {
  I8x32 low, high;
};
struct I32x16 {
  I32x8 low, high;
};
struct F32x16 {
  F32x8 low, high;
};
TUTTI_KERNEL_INLINE I8x64 both(I8x32 const& low, I8x32 const& high) { return {low, high}; }
TUTTI_KERNEL_INLINE F32x16 both(F32x8 const& low, F32x8 const& high) { return {low, high}; }
TUTTI_KERNEL_INLINE F32x8 low_half(F32x16 const& a) { return a.low; }
TUTTI_KERNEL_INLINE F32x8 high_half(F32x16 const& a) { return a.high; }
TUTTI_KERNEL_INLINE I8x64 load_pair(void const* p) {
  return {load_bytes(p), load_bytes(static_cast<std::byte const*>(p) + 32)};
}
TUTTI_KERNEL_INLINE F32x16 eights(float const* p) { return {broadcast(p), broadcast(p + 1)}; }
TUTTI_KERNEL_INLINE I32x16 eights(std::int32_t const* p) { return {broadcast(p), broadcast(p + 1)}; }
TUTTI_KERNEL_INLINE I32x16 shift_left(I32x16 const& a, int shift) {
  return {shift_left(a.low, shift), shift_left(a.high, shift)};
}
TUTTI_KERNEL_INLINE I32x16 dot4_unsigned(I32x16 const& sum, I8x64 const& w, I8x64 const& x) {
  return {dot4_unsigned(sum.low, w.low, x.low), dot4_unsigned(sum.high, w.high, x.high)};
}
TUTTI_KERNEL_INLINE I32x16 dot4_unsigned(I8x64 const& w, I8x64 const& x) {
  return {dot4_unsigned(w.low, x.low), dot4_unsigned(w.high, x.high)};
}
TUTTI_KERNEL_INLINE I32x16 dot4_signed(I8x64 const& w, I8x64 const& x) {
  return {dot4_signed(w.low, x.low), dot4_signed(w.high, x.high)};
}
TUTTI_KERNEL_INLINE F32x16 to_float(I32x16 const& a) { return {to_float(a.low), to_float(a.high)}; }
TUTTI_KERNEL_INLINE F32x16 times(F32x16 const& a, F32x16 const& b) {
  return {times(a.low, b.low), times(a.high, b.high)};
}
TUTTI_KERNEL_INLINE F32x16 plus_product(F32x16 const& sum, F32x16 const& a, F32x16 const& b) {
  return {plus_product(sum.low, a.low, b.low), plus_product(sum.high, a.high, b.high)};
}

#endif
