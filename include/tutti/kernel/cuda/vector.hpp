// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Accesses of 16 bytes to float and bfloat16 memory, computed with as floats.

#include <tutti/core/bfloat16.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace tutti::kernel::cuda::detail {

/// Elements of one 16-byte access.
template <class T>
inline constexpr int vector_size = static_cast<int>(16 / sizeof(T));

/// Whether rows of `count` elements can be walked in accesses of 16 bytes: every pointer that is given is a multiple
/// of 16, and so is the distance between rows.
template <class T>
bool vectors_fit(std::int64_t count, std::initializer_list<void const*> pointers) {
  bool fits = count % vector_size<T> == 0;
  for (void const* pointer : pointers) fits = fits && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  return fits;
}

/// The bits of N consecutive elements: of one, or of whole accesses of 16 or 8 bytes.
template <int N, class T>
struct Bits {
  static_assert(N == 1 || N * sizeof(T) % 16 == 0 || N * sizeof(T) == 8);
  static constexpr int words = N == 1 ? 1 : N * static_cast<int>(sizeof(T)) / 4;
  std::uint32_t word[words];

  /// From an address that is a multiple of the access.
  __device__ static Bits of(T const* from) {
    Bits bits;
    if constexpr (N == 1) {
      if constexpr (sizeof(T) == 4) bits.word[0] = std::bit_cast<std::uint32_t>(*from);
      else bits.word[0] = std::uint32_t{from->bits} << 16;
    } else if constexpr (words == 2) {
      uint2 const two = *reinterpret_cast<uint2 const*>(from);
      bits.word[0] = two.x;
      bits.word[1] = two.y;
    } else {
#pragma unroll
      for (int k = 0; k < words; k += 4) {
        uint4 const four = *reinterpret_cast<uint4 const*>(from + k * 4 / static_cast<int>(sizeof(T)));
        bits.word[k] = four.x;
        bits.word[k + 1] = four.y;
        bits.word[k + 2] = four.z;
        bits.word[k + 3] = four.w;
      }
    }
    return bits;
  }
  __device__ static Bits from(float const (&values)[N]) {
    Bits bits;
#pragma unroll
    for (int k = 0; k < words; ++k) {
      if constexpr (sizeof(T) == 4 || N == 1) bits.word[k] = std::bit_cast<std::uint32_t>(values[k]);
      else bits.word[k] = pack_bfloat16(values[2 * k], values[2 * k + 1]);
    }
    return bits;
  }
  __device__ static Bits all(float value) {
    float values[N];
#pragma unroll
    for (float& each : values) each = value;
    return from(values);
  }
  __device__ void unpack(float (&to)[N]) const {
#pragma unroll
    for (int k = 0; k < words; ++k) {
      if constexpr (sizeof(T) == 4 || N == 1) {
        to[k] = std::bit_cast<float>(word[k]);
      } else {
        to[2 * k] = std::bit_cast<float>(word[k] << 16);
        to[2 * k + 1] = std::bit_cast<float>(word[k] & 0xffff0000u);
      }
    }
  }
};

/// N consecutive elements: one of any alignment, or whole accesses of 16 or 8 bytes at their multiples.
template <int N, class T>
__device__ void load(T const* from, float (&to)[N]) {
  Bits<N, T>::of(from).unpack(to);
}

/// Of memory that nothing writes while the kernel runs.
template <int N>
__device__ void load_constant(float const* from, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = __ldg(from);
  } else {
#pragma unroll
    for (int first = 0; first < N; first += 4) {
      float4 const four = __ldg(reinterpret_cast<float4 const*>(from + first));
      to[first] = four.x;
      to[first + 1] = four.y;
      to[first + 2] = four.z;
      to[first + 3] = four.w;
    }
  }
}

template <int N, class T>
__device__ void store(T* to, float const (&from)[N]) {
  if constexpr (N == 1) {
    *to = T(from[0]);
  } else {
    auto const [word] = Bits<N, T>::from(from);
    if constexpr (Bits<N, T>::words == 2) {
      *reinterpret_cast<uint2*>(to) = uint2{word[0], word[1]};
    } else {
#pragma unroll
      for (int k = 0; k < Bits<N, T>::words; k += 4)
        *reinterpret_cast<uint4*>(to + k * 4 / static_cast<int>(sizeof(T))) =
            uint4{word[k], word[k + 1], word[k + 2], word[k + 3]};
    }
  }
}

}  // namespace tutti::kernel::cuda::detail
