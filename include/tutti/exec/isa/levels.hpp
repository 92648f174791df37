// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The vector types of every instruction-set level: tutti::isa::{scalar, avx2, avx512, avx512_bf16}.
///
/// Each level defines the same names, so that one kernel text serves all (see foreach.inl):
///   F32, I32   vectors of F32::lanes floats / 32-bit integers      Mask   one truth value a lane
///              (F32::level: 0 scalar, 1 avx2, 2 avx512 and avx512_bf16)
///   F64        vectors of F64::lanes doubles, with load, store and their partial forms, set_f64, mul, fma and
///              load_transposed alone
/// load, load_partial(p, n) (lanes from n on are zero), store, store_partial(p, v, n) for float, int32, bfloat16,
/// float16; load of int8 and uint8 as I32, store of the low bytes of I32 as int8; set, zero, set_i32, add, sub, mul,
/// div, fma(a, b, c) = a b + c, fnma(a, b, c) = c - a b, sqrt, abs, floor, ceil, neg, copysign; min, max (the second
/// operand where one is NaN); sum, max_lane, min_lane across the lanes in a fixed order;
/// less, less_equal, equal, not_equal, any,
/// all, select(mask, if_true, if_false); as_i32 / as_f32 (bits), to_i32 (to nearest even) / to_f32 (value), bit_and,
/// bit_or, bit_xor, shift_left<n>, shift_right<n> (arithmetic), shift_right_logical<n>; scale(v, n) = v 2^n for
/// integral n in [-200, 200]; load_transposed(p, stride, rows, out): out[c] lane r = p[r * stride + c] for 4 columns c,
/// rows at most `lanes` (the rest repeats the last row); of bfloat16 the pairs p[r * stride + 2 c] and its successor,
/// as bits; deinterleave(a, b, even, odd): the elements of even and of odd place of a followed by b; interleave(even,
/// odd, a, b) undoes it; round_bfloat16(v): floats, to the nearest even bfloat16; pack_bfloat16(low, high): the same as
/// bits, a pair a lane (where has_dot2, subnormals are zero); dot2(c, a, b): c + two products of such pairs a lane;
/// has_dot2: in one instruction; dot2_i16(c, a, b): c + two products of signed 16-bit halves a lane; dot2_u8(a, b): two
/// products of unsigned by signed bytes a half, add_i16 their sums, all of which must fit 16 bits; dot4(c, a, b): c +
/// four products of unsigned by signed bytes; has_dot4: in one instruction; sums of integers wrap around; exp, log,
/// tanh, logistic, gelu, gelu_gradient, silu, silu_gradient, silu_and_gradient, sin, cos, erf,
/// exact_gelu, maximum, one_or_zero, like (math.inl).
///
/// A vector register never crosses a function that was compiled for another level: everything here is always inlined.

#include <tutti/config.hpp>
#include <tutti/core/bfloat16.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/exec/isa.hpp>

#if TUTTI_HAS_X86
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes its own "undefined" pass-through operands for uninitialised variables.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Before a loop of constant length over registers: an array of vectors must not live in memory.
#define TUTTI_UNROLL _Pragma("GCC unroll 16")

#define TUTTI_TARGET
#define TUTTI_KERNEL_INLINE TUTTI_ALWAYS_INLINE
#include <tutti/exec/isa/scalar.inl>
namespace tutti::isa::scalar {
#include <tutti/exec/isa/math.inl>
}
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE

#if TUTTI_HAS_X86
#define TUTTI_TARGET TUTTI_TARGET_AVX2
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX2 TUTTI_ALWAYS_INLINE
#include <tutti/exec/isa/avx2.inl>
namespace tutti::isa::avx2 {
#include <tutti/exec/isa/math.inl>
}
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE

#define TUTTI_TARGET TUTTI_TARGET_AVX512
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX512 TUTTI_ALWAYS_INLINE
#include <tutti/exec/isa/avx512.inl>
namespace tutti::isa::avx512 {
#include <tutti/exec/isa/math.inl>
}
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE
#endif

/// Ends a function with `call` of the level that `level` names, for bodies stamped with foreach.inl:
///   inline void f(exec::Context& context, F const& args) { TUTTI_DISPATCH(context.isa(), f(context, args)); }
/// TUTTI_DISPATCH_ALL is for bodies that asked for avx512_bf16 as well.
#if TUTTI_HAS_X86
#define TUTTI_DISPATCH(level, ...)                                            \
  do {                                                                        \
    switch (level) {                                                          \
      case ::tutti::exec::Isa::scalar: break;                                 \
      case ::tutti::exec::Isa::avx2: return avx2::__VA_ARGS__;                \
      case ::tutti::exec::Isa::avx512:                                        \
      case ::tutti::exec::Isa::avx512_bf16: return avx512::__VA_ARGS__;       \
    }                                                                         \
    return scalar::__VA_ARGS__;                                               \
  } while (false)
#define TUTTI_DISPATCH_ALL(level, ...)                                        \
  do {                                                                        \
    switch (level) {                                                          \
      case ::tutti::exec::Isa::scalar: break;                                 \
      case ::tutti::exec::Isa::avx2: return avx2::__VA_ARGS__;                \
      case ::tutti::exec::Isa::avx512: return avx512::__VA_ARGS__;            \
      case ::tutti::exec::Isa::avx512_bf16: return avx512_bf16::__VA_ARGS__;  \
    }                                                                         \
    return scalar::__VA_ARGS__;                                               \
  } while (false)
#else
#define TUTTI_DISPATCH(level, ...)                 \
  do {                                             \
    static_cast<void>(level);                      \
    return scalar::__VA_ARGS__;                    \
  } while (false)
#define TUTTI_DISPATCH_ALL(level, ...) TUTTI_DISPATCH(level, __VA_ARGS__)
#endif
