// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The named operators on blocks of numbers in vector registers. They use the compiler's own vectors: of 32 bytes where
/// the processor has AVX2, else of 16, which every 64-bit processor has. An array of accumulators, which g++ 12 keeps
/// in memory, takes two to three times as long on data in the caches. The bits are those of one element after another,
/// in the default rounding mode.

#include <tutti/core/bfloat16.hpp>
#include <tutti/config.hpp>
#include <tutti/core/float16.hpp>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tutti::comm::detail {

template <class T, int Bytes>
using Vector [[gnu::vector_size(Bytes)]] = T;

template <class T>
inline constexpr bool is_half_float = std::same_as<T, bfloat16> || std::same_as<T, float16>;

/// What numbers are calculated in: floats for those of 16 bits; integers that may overflow without a sign, to wrap.
template <class T, bool Compares>
struct LaneOf {
  using type = T;
};
template <class T, bool Compares>
  requires is_half_float<T>
struct LaneOf<T, Compares> {
  using type = float;
};
template <std::signed_integral T>
struct LaneOf<T, false> {
  using type = std::make_unsigned_t<T>;
};

/// 16-bit floats in both halves of the words of a vector. Nothing here rounds a float, or depends on how small ones are
/// treated, but the sum with 0.5, whose last bit is that of the smallest float16.
template <int Bytes>
struct HalfFloats {
  using Bits = Vector<std::int32_t, Bytes>;
  using Floats = Vector<float, Bytes>;

  TUTTI_ALWAYS_INLINE static void widen(bfloat16, Bits const& word, Floats& low, Floats& high) {
    low = reinterpret_cast<Floats>(word << 16);
    high = reinterpret_cast<Floats>(word & ~0xffff);
  }
  TUTTI_ALWAYS_INLINE static void narrow(bfloat16, Floats const& low, Floats const& high, Bits& word) {
    Bits first, second;
    round_upper(low, first);
    round_upper(high, second);
    word = ((first >> 16) & 0xffff) | (second & ~0xffff);
  }
  TUTTI_ALWAYS_INLINE static void widen(float16, Bits const& word, Floats& low, Floats& high) {
    widen_binary16(word & 0xffff, low);
    widen_binary16((word >> 16) & 0xffff, high);
  }
  TUTTI_ALWAYS_INLINE static void narrow(float16, Floats const& low, Floats const& high, Bits& word) {
    Bits first, second;
    narrow_binary16(low, first);
    narrow_binary16(high, second);
    word = first | (second << 16);
  }

 private:
  /// The upper half of each word is what bfloat16's constructor makes of it.
  TUTTI_ALWAYS_INLINE static void round_upper(Floats const& value, Bits& bits) {
    auto const given = reinterpret_cast<Vector<std::uint32_t, Bytes>>(value);  // of which a NaN may wrap around
    Bits const rounded = reinterpret_cast<Bits>(given + 0x7fffu + ((given >> 16) & 1u));
    Bits const same = reinterpret_cast<Bits>(given);
    bits = (same & 0x7fffffff) > 0x7f800000 ? same | 0x00400000 : rounded;
  }
  TUTTI_ALWAYS_INLINE static void widen_binary16(Bits const& half, Floats& value) {
    Bits const magnitude = (half & 0x7fff) << 13;
    Bits const normal = magnitude + 0x38000000;
    Bits const special = normal | 0x7f800000;
    Bits const subnormal = reinterpret_cast<Bits>(reinterpret_cast<Floats>(magnitude + 0x38800000) - 0x1p-14f);
    Bits const finite = magnitude < 0x00800000 ? subnormal : normal;
    value = reinterpret_cast<Floats>((magnitude < 0x0f800000 ? finite : special) | ((half & 0x8000) << 16));
  }
  /// As float16's constructor does.
  TUTTI_ALWAYS_INLINE static void narrow_binary16(Floats const& value, Bits& half) {
    Bits const given = reinterpret_cast<Bits>(value);
    Bits const magnitude = given & 0x7fffffff;
    Bits const rebased = magnitude - 0x38000000;
    Bits const normal = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
    Bits const subnormal = reinterpret_cast<Bits>(reinterpret_cast<Floats>(magnitude) + 0.5f) - 0x3f000000;
    Bits const finite = magnitude < 0x38800000 ? subnormal : normal;
    Bits const infinity = magnitude - magnitude + 0x7c00;
    Bits const nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
    Bits const special = magnitude > 0x7f800000 ? nan : infinity;
    half = (magnitude < 0x477ff000 ? finite : special) | ((given >> 16) & 0x8000);
  }
};

/// Four vectors of numbers of type T, which are calculated with as Lane. Passed by reference alone: without AVX a
/// vector of 32 bytes is no argument.
template <class T, class Lane, int Bytes>
struct Lanes {
  using V = Vector<Lane, Bytes>;
  static constexpr std::int64_t count = 4 * Bytes / static_cast<int>(sizeof(Lane));
  V a, b, c, d;

  TUTTI_ALWAYS_INLINE void load(T const* from) {
    if constexpr (is_half_float<T>) {
      Vector<std::int32_t, Bytes> first, second;
      std::memcpy(&first, from, Bytes);
      std::memcpy(&second, from + count / 2, Bytes);
      HalfFloats<Bytes>::widen(T(), first, a, b);
      HalfFloats<Bytes>::widen(T(), second, c, d);
    } else {
      std::memcpy(&a, from, Bytes);
      std::memcpy(&b, from + count / 4, Bytes);
      std::memcpy(&c, from + count / 2, Bytes);
      std::memcpy(&d, from + 3 * count / 4, Bytes);
    }
  }
  /// To each of `copies` arrays from their element `at` on.
  TUTTI_ALWAYS_INLINE void store(void* const* to, int copies, std::int64_t at) const {
    if constexpr (is_half_float<T>) {
      Vector<std::int32_t, Bytes> first, second;
      HalfFloats<Bytes>::narrow(T(), a, b, first);
      HalfFloats<Bytes>::narrow(T(), c, d, second);
      for (int i = 0; i < copies; ++i) {
        T* const out = static_cast<T*>(to[i]) + at;
        std::memcpy(static_cast<void*>(out), &first, Bytes);
        std::memcpy(static_cast<void*>(out + count / 2), &second, Bytes);
      }
    } else {
      for (int i = 0; i < copies; ++i) {
        T* const out = static_cast<T*>(to[i]) + at;
        std::memcpy(out, &a, Bytes);
        std::memcpy(out + count / 4, &b, Bytes);
        std::memcpy(out + count / 2, &c, Bytes);
        std::memcpy(out + 3 * count / 4, &d, Bytes);
      }
    }
  }
};

/// Whether this processor runs `fold_lanes` with vectors of 32 bytes.
inline bool has_wide_vectors() noexcept {
#if TUTTI_HAS_X86
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

}  // namespace tutti::comm::detail
