// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// The names of bytes.hpp in portable C++. Included by bytes.hpp alone.

struct I8x32 {
  std::int8_t v[32];
};
struct I16x16 {
  std::int16_t v[16];
};
struct I32x8 {
  std::int32_t v[8];
};
struct F32x8 {
  float v[8];
};

/// f(i) of every lane.
template <class Vector, class F>
TUTTI_KERNEL_INLINE Vector lanes_of(F f) {
  Vector result;
  constexpr int count = static_cast<int>(sizeof result.v / sizeof *result.v);
  for (int i = 0; i < count; ++i) result.v[i] = static_cast<std::remove_cvref_t<decltype(result.v[0])>>(f(i));
  return result;
}

TUTTI_KERNEL_INLINE I8x32 load_bytes(void const* p) {
  I8x32 result;
  __builtin_memcpy(result.v, p, 32);
  return result;
}
TUTTI_KERNEL_INLINE void store(std::int8_t* p, I8x32 const& a) { __builtin_memcpy(p, a.v, sizeof a.v); }
TUTTI_KERNEL_INLINE I8x32 nibbles(void const* p) {
  auto const* const q = static_cast<std::uint8_t const*>(p);
  return lanes_of<I8x32>([&](int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; });
}
TUTTI_KERNEL_INLINE I8x32 bits(I8x32 const& a, int shift, int mask) {
  return lanes_of<I8x32>([&](int i) {
    int const byte = static_cast<std::uint8_t>(a.v[i]);
    return (shift < 0 ? byte << -shift : byte >> shift) & mask;
  });
}
TUTTI_KERNEL_INLINE I8x32 join(I8x32 const& a, I8x32 const& b) {
  return lanes_of<I8x32>([&](int i) { return a.v[i] | b.v[i]; });
}
TUTTI_KERNEL_INLINE I8x32 minus(I8x32 const& a, int b) {
  return lanes_of<I8x32>([&](int i) { return a.v[i] - b; });
}
TUTTI_KERNEL_INLINE I8x32 sixteens(std::uint8_t const* p) {
  return lanes_of<I8x32>([&](int i) { return ((p[i / 8] >> (i % 8)) & 1) * 16; });
}
TUTTI_KERNEL_INLINE I8x32 look_up(std::int8_t const* table, I8x32 const& places) {
  return lanes_of<I8x32>([&](int i) { return table[places.v[i]]; });
}

TUTTI_KERNEL_INLINE I16x16 dot2_unsigned(I8x32 const& w, I8x32 const& x) {
  return lanes_of<I16x16>([&](int i) { return w.v[2 * i] * x.v[2 * i] + w.v[2 * i + 1] * x.v[2 * i + 1]; });
}
TUTTI_KERNEL_INLINE I16x16 dot2_signed(I8x32 const& w, I8x32 const& x) { return dot2_unsigned(w, x); }
TUTTI_KERNEL_INLINE I32x8 dot2(I16x16 const& a, I16x16 const& b) {
  return lanes_of<I32x8>([&](int i) { return a.v[2 * i] * b.v[2 * i] + a.v[2 * i + 1] * b.v[2 * i + 1]; });
}
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I8x32 const& w, I8x32 const& x) {
  return lanes_of<I32x8>([&](int i) {
    return w.v[4 * i] * x.v[4 * i] + w.v[4 * i + 1] * x.v[4 * i + 1] + w.v[4 * i + 2] * x.v[4 * i + 2] +
           w.v[4 * i + 3] * x.v[4 * i + 3];
  });
}
TUTTI_KERNEL_INLINE I32x8 dot4_unsigned(I32x8 const& sum, I8x32 const& w, I8x32 const& x) {
  I32x8 const dot = dot4_unsigned(w, x);
  return lanes_of<I32x8>([&](int i) { return sum.v[i] + dot.v[i]; });
}
TUTTI_KERNEL_INLINE I32x8 dot4_signed(I8x32 const& w, I8x32 const& x) { return dot4_unsigned(w, x); }

TUTTI_KERNEL_INLINE I16x16 load_shorts(std::int16_t const* p) {
  return lanes_of<I16x16>([&](int i) { return p[i]; });
}
TUTTI_KERNEL_INLINE void store(std::int16_t* p, I16x16 const& a) { __builtin_memcpy(p, a.v, sizeof a.v); }
TUTTI_KERNEL_INLINE I16x16 even_odd(void const* p) {
  auto const* const bytes = static_cast<std::int8_t const*>(p);
  return lanes_of<I16x16>([&](int i) { return bytes[i < 8 ? 2 * i : 2 * i - 15]; });
}
TUTTI_KERNEL_INLINE I16x16 twice(std::uint64_t bytes) {
  return lanes_of<I16x16>([&](int i) { return (bytes >> (8 * (i % 8))) & 255; });
}
TUTTI_KERNEL_INLINE I16x16 minus(I16x16 const& a, int b) {
  return lanes_of<I16x16>([&](int i) { return a.v[i] - b; });
}
TUTTI_KERNEL_INLINE I16x16 low_nibbles(I16x16 const& a) {
  return lanes_of<I16x16>([&](int i) { return a.v[i] & 15; });
}
TUTTI_KERNEL_INLINE I16x16 high_nibbles(I16x16 const& a) {
  return lanes_of<I16x16>([&](int i) { return (a.v[i] >> 4) & 15; });
}
TUTTI_KERNEL_INLINE I16x16 spread(I16x16 const& a, int part) {
  return lanes_of<I16x16>([&](int i) { return a.v[i / 8 * 8 + part]; });
}

TUTTI_KERNEL_INLINE I32x8 add(I32x8 const& a, I32x8 const& b) {
  return lanes_of<I32x8>([&](int i) { return a.v[i] + b.v[i]; });
}
TUTTI_KERNEL_INLINE I32x8 minus_times(I32x8 const& a, I32x8 const& b, int shift) {
  return lanes_of<I32x8>([&](int i) { return a.v[i] - b.v[i] * (1 << shift); });
}
TUTTI_KERNEL_INLINE I32x8 shift_left(I32x8 const& a, int shift) {
  return lanes_of<I32x8>([&](int i) { return a.v[i] * (1 << shift); });
}
TUTTI_KERNEL_INLINE F32x8 to_float(I32x8 const& a) {
  return lanes_of<F32x8>([&](int i) { return a.v[i]; });
}
TUTTI_KERNEL_INLINE I32x8 broadcast(std::int32_t const* p) {
  std::int32_t const value = *p;
  return lanes_of<I32x8>([&](int) { return value; });
}
TUTTI_KERNEL_INLINE F32x8 broadcast(float const* p) {
  float const value = *p;
  return lanes_of<F32x8>([&](int) { return value; });
}
TUTTI_KERNEL_INLINE F32x8 broadcast(float16 const* p) {
  float const value = *p;
  return broadcast(&value);
}
TUTTI_KERNEL_INLINE F32x8 plus(F32x8 const& a, F32x8 const& b) {
  return lanes_of<F32x8>([&](int i) { return a.v[i] + b.v[i]; });
}
TUTTI_KERNEL_INLINE F32x8 times(F32x8 const& a, F32x8 const& b) {
  return lanes_of<F32x8>([&](int i) { return a.v[i] * b.v[i]; });
}
TUTTI_KERNEL_INLINE F32x8 plus_product(F32x8 const& sum, F32x8 const& a, F32x8 const& b) {
  return lanes_of<F32x8>([&](int i) { return sum.v[i] + a.v[i] * b.v[i]; });
}
TUTTI_KERNEL_INLINE F32x8 minus_product(F32x8 const& sum, F32x8 const& a, F32x8 const& b) {
  return lanes_of<F32x8>([&](int i) { return sum.v[i] - a.v[i] * b.v[i]; });
}
/// In the order of the other levels.
TUTTI_KERNEL_INLINE float total(F32x8 const& a) {
  float x[4];
  for (int i = 0; i < 4; ++i) x[i] = a.v[i] + a.v[i + 4];
  return (x[0] + x[2]) + (x[1] + x[3]);
}

#include <tutti/exec/isa/bytes_pairs.inl>
