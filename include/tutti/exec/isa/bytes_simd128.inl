// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The names of bytes.hpp in pairs of WebAssembly's vectors of 128 bits; the same bits as in portable C++. Included by
/// bytes.hpp alone.

struct I8x32 {
  v128_t a, b;
};
struct I16x16 {
  v128_t a, b;
};
struct I32x8 {
  v128_t a, b;
};
struct F32x8 {
  v128_t a, b;
};

TUTTI_KERNEL_INLINE I8x32 load_bytes(void const* p) {
  return {wasm_v128_load(p), wasm_v128_load(static_cast<char const*>(p) + 16)};
}
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I8x32 const& x) {
  wasm_v128_store(p, x.a);
  wasm_v128_store(p + 16, x.b);
}
TUTTI_KERNEL_INLINE I8x32 nibbles(void const* p) {
  v128_t const both = wasm_v128_load(p);
  return {wasm_v128_and(both, wasm_i8x16_splat(15)), wasm_u8x16_shr(both, 4)};
}
TUTTI_KERNEL_INLINE I8x32 bits(I8x32 const& x, int shift, int mask) {
  v128_t const kept = wasm_i8x16_splat(static_cast<std::int8_t>(mask));
  auto const one = [&](v128_t v) {
    return wasm_v128_and(shift < 0 ? wasm_i8x16_shl(v, static_cast<std::uint32_t>(-shift))
                                   : wasm_u8x16_shr(v, static_cast<std::uint32_t>(shift)),
                         kept);
  };
  return {one(x.a), one(x.b)};
}
TUTTI_KERNEL_INLINE I8x32 join(I8x32 const& x, I8x32 const& y) {
  return {wasm_v128_or(x.a, y.a), wasm_v128_or(x.b, y.b)};
}
TUTTI_KERNEL_INLINE I8x32 minus(I8x32 const& x, int n) {
  v128_t const less = wasm_i8x16_splat(static_cast<std::int8_t>(n));
  return {wasm_i8x16_sub(x.a, less), wasm_i8x16_sub(x.b, less)};
}
TUTTI_KERNEL_INLINE I8x32 sixteens(std::uint8_t const* p) {
  v128_t const all = wasm_v128_load32_splat(p);
  v128_t const bit = wasm_i64x2_splat(static_cast<std::int64_t>(0x8040201008040201u));
  auto const one = [&](v128_t places) {
    v128_t const set = wasm_v128_and(wasm_i8x16_swizzle(all, places), bit);
    return wasm_v128_and(wasm_i8x16_eq(set, bit), wasm_i8x16_splat(16));
  };
  return {one(wasm_i8x16_const(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)),
          one(wasm_i8x16_const(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3))};
}
TUTTI_KERNEL_INLINE I8x32 look_up(std::int8_t const* table, I8x32 const& places) {
  v128_t const values = wasm_v128_load(table);
  return {wasm_i8x16_swizzle(values, places.a), wasm_i8x16_swizzle(values, places.b)};
}

/// Sums of two neighbouring products of the first eight and the last eight of sixteen bytes.
struct TwoDots {
  v128_t first, last;
};
TUTTI_KERNEL_INLINE TwoDots two_dots(v128_t w, v128_t x) {
  return {wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(w), wasm_i16x8_extend_low_i8x16(x)),
          wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(w), wasm_i16x8_extend_high_i8x16(x))};
}
TUTTI_KERNEL_INLINE v128_t four_products(v128_t w, v128_t x) {
  TwoDots const pairs = two_dots(w, x);
  return wasm_i32x4_add(wasm_i32x4_shuffle(pairs.first, pairs.last, 0, 2, 4, 6),
                        wasm_i32x4_shuffle(pairs.first, pairs.last, 1, 3, 5, 7));
}
TUTTI_KERNEL_INLINE v128_t two_products(v128_t w, v128_t x) {
  TwoDots const pairs = two_dots(w, x);
  return wasm_i16x8_narrow_i32x4(pairs.first, pairs.last);
}
TUTTI_KERNEL_INLINE I16x16 dot2_unsigned(I8x32 const& w, I8x32 const& x) {
  return {two_products(w.a, x.a), two_products(w.b, x.b)};
}
TUTTI_KERNEL_INLINE I16x16 dot2_signed(I8x32 const& w, I8x32 const& x) { return dot2_unsigned(w, x); }
TUTTI_KERNEL_INLINE I32x8 dot2(I16x16 const& x, I16x16 const& y) {
  return {wasm_i32x4_dot_i16x8(x.a, y.a), wasm_i32x4_dot_i16x8(x.b, y.b)};
}
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I8x32 const& w, I8x32 const& x) {
  return {four_products(w.a, x.a), four_products(w.b, x.b)};
}
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I32x8 const& sum, I8x32 const& w, I8x32 const& x) {
  I32x8 const dot = dot4_unsigned(w, x);
  return {wasm_i32x4_add(sum.a, dot.a), wasm_i32x4_add(sum.b, dot.b)};
}
TUTTI_KERNEL_INLINE I32x8 dot4_signed(I8x32 const& w, I8x32 const& x) { return dot4_unsigned(w, x); }

TUTTI_KERNEL_INLINE I16x16 load_shorts(std::int16_t const* p) { return {wasm_v128_load(p), wasm_v128_load(p + 8)}; }
TUTTI_KERNEL_INLINE void store(std::int16_t* p, I16x16 const& x) {
  wasm_v128_store(p, x.a);
  wasm_v128_store(p + 8, x.b);
}
TUTTI_KERNEL_INLINE I16x16 even_odd(void const* p) {
  v128_t const all = wasm_v128_load(p);
  return {wasm_i16x8_shr(wasm_i16x8_shl(all, 8), 8), wasm_i16x8_shr(all, 8)};
}
TUTTI_KERNEL_INLINE I16x16 twice(std::uint64_t bytes) {
  v128_t const eight = wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat(static_cast<std::int64_t>(bytes)));
  return {eight, eight};
}
TUTTI_KERNEL_INLINE I16x16 minus(I16x16 const& x, int n) {
  v128_t const less = wasm_i16x8_splat(static_cast<std::int16_t>(n));
  return {wasm_i16x8_sub(x.a, less), wasm_i16x8_sub(x.b, less)};
}
TUTTI_KERNEL_INLINE I16x16 low_nibbles(I16x16 const& x) {
  v128_t const mask = wasm_i16x8_splat(15);
  return {wasm_v128_and(x.a, mask), wasm_v128_and(x.b, mask)};
}
TUTTI_KERNEL_INLINE I16x16 high_nibbles(I16x16 const& x) {
  return low_nibbles({wasm_u16x8_shr(x.a, 4), wasm_u16x8_shr(x.b, 4)});
}
TUTTI_KERNEL_INLINE I16x16 spread(I16x16 const& x, int part) {
  v128_t const places = wasm_i16x8_splat(static_cast<std::int16_t>(2 * part + ((2 * part + 1) << 8)));
  return {wasm_i8x16_swizzle(x.a, places), wasm_i8x16_swizzle(x.b, places)};
}

TUTTI_KERNEL_INLINE I32x8 add(I32x8 const& x, I32x8 const& y) {
  return {wasm_i32x4_add(x.a, y.a), wasm_i32x4_add(x.b, y.b)};
}
TUTTI_KERNEL_INLINE I32x8 minus_times(I32x8 const& x, I32x8 const& y, int shift) {
  auto const by = static_cast<std::uint32_t>(shift);
  return {wasm_i32x4_sub(x.a, wasm_i32x4_shl(y.a, by)), wasm_i32x4_sub(x.b, wasm_i32x4_shl(y.b, by))};
}
TUTTI_KERNEL_INLINE I32x8 shift_left(I32x8 const& x, int shift) {
  auto const by = static_cast<std::uint32_t>(shift);
  return {wasm_i32x4_shl(x.a, by), wasm_i32x4_shl(x.b, by)};
}
TUTTI_KERNEL_INLINE F32x8 to_float(I32x8 const& x) {
  return {wasm_f32x4_convert_i32x4(x.a), wasm_f32x4_convert_i32x4(x.b)};
}
TUTTI_KERNEL_INLINE I32x8 broadcast(std::int32_t const* p) {
  v128_t const value = wasm_v128_load32_splat(p);
  return {value, value};
}
TUTTI_KERNEL_INLINE F32x8 broadcast(float const* p) {
  v128_t const value = wasm_v128_load32_splat(p);
  return {value, value};
}
TUTTI_KERNEL_INLINE F32x8 broadcast(float16 const* p) {
  // Exact for every finite number, subnormal ones included; what has the highest exponent gets it here too.
  std::uint32_t const bits = p->bits;
  float const size = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112f;
  std::uint32_t const exponent = size >= 65536.0f ? 0x7f800000u : 0u;
  v128_t const value = wasm_u32x4_splat(std::bit_cast<std::uint32_t>(size) | exponent | (bits & 0x8000u) << 16);
  return {value, value};
}
TUTTI_KERNEL_INLINE F32x8 plus(F32x8 const& x, F32x8 const& y) {
  return {wasm_f32x4_add(x.a, y.a), wasm_f32x4_add(x.b, y.b)};
}
TUTTI_KERNEL_INLINE F32x8 times(F32x8 const& x, F32x8 const& y) {
  return {wasm_f32x4_mul(x.a, y.a), wasm_f32x4_mul(x.b, y.b)};
}
TUTTI_KERNEL_INLINE F32x8 plus_product(F32x8 const& sum, F32x8 const& x, F32x8 const& y) {
  return plus(sum, times(x, y));
}
TUTTI_KERNEL_INLINE F32x8 minus_product(F32x8 const& sum, F32x8 const& x, F32x8 const& y) {
  F32x8 const product = times(x, y);
  return {wasm_f32x4_sub(sum.a, product.a), wasm_f32x4_sub(sum.b, product.b)};
}
/// In the order of the other levels.
TUTTI_KERNEL_INLINE float total(F32x8 const& x) {
  v128_t const four = wasm_f32x4_add(x.a, x.b);
  return (wasm_f32x4_extract_lane(four, 0) + wasm_f32x4_extract_lane(four, 2)) +
         (wasm_f32x4_extract_lane(four, 1) + wasm_f32x4_extract_lane(four, 3));
}

#include <tutti/exec/isa/bytes_pairs.inl>
