// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// CUDA's qualifiers and vector types.

#include <cstddef>
#include <cstdint>

// What shared memory is to the blocks of a grid, that is a thread's memory to the blocks that it runs one after
// another.
#define __shared__ static thread_local
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
// __noinline__ is left alone: the standard library spells attributes with it.

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define TUTTI_EMULATED_VECTORS(type, name)                                                    \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
  struct name##3 { type x, y, z; };                                                           \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                 \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
#define TUTTI_EMULATED_VECTORS_OF_TWO_AND_FOUR(type, name)                                    \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
TUTTI_EMULATED_VECTORS(float, float)
TUTTI_EMULATED_VECTORS(int, int)
TUTTI_EMULATED_VECTORS_OF_TWO_AND_FOUR(unsigned, uint)
TUTTI_EMULATED_VECTORS(unsigned char, uchar)
TUTTI_EMULATED_VECTORS(short, short)
TUTTI_EMULATED_VECTORS(unsigned short, ushort)
TUTTI_EMULATED_VECTORS(double, double)
TUTTI_EMULATED_VECTORS_OF_TWO_AND_FOUR(long long, longlong)
TUTTI_EMULATED_VECTORS_OF_TWO_AND_FOUR(unsigned long long, ulonglong)
#undef TUTTI_EMULATED_VECTORS
#undef TUTTI_EMULATED_VECTORS_OF_TWO_AND_FOUR
