// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Vectors of 256 bits at every instruction-set level, for products of int8 with the codes of quantised weights:
/// tutti::isa::<level>::bytes. On processors without vectors they are arrays, in
/// WebAssembly pairs of its vectors.
///
///   I8x32, I16x16, I32x8, F32x8
///   load_bytes(p), load_shorts(p), store(p, a)   of any address
///   nibbles(p)            of 16 bytes the low halves, then the high ones
///   bits(a, shift, mask)  (a >> shift) & mask of every byte, of a negative shift (a << -shift) & mask; mask has only
///                         bits that come from the same byte
///   join(a, b)            bitwise or
///   minus(a, n)           less n, of bytes or shorts
///   sixteens(p)           of the 32 bits at p: 16 where one is set, else 0
///   look_up(table, a)     table[a], of 16 bytes
///   dot2_unsigned(w, x), dot2_signed(w, x)   sums of two neighbouring products, of w in [0, 127] or [-128, 127] by
///                         x in [-127, 127]; dot4_unsigned, dot4_signed: of four, dot4_unsigned(sum, w, x) added to sum
///   dot2(a, b)            of shorts
///   even_odd(p)           of 16 signed bytes those of even place, then those of odd place, as shorts
///   twice(eight)          eight unsigned bytes as shorts, then once more
///   low_nibbles(a), high_nibbles(a)   bits 0 to 3, 4 to 7 of shorts
///   spread(a, part)       short `part` of each half, in the whole half
///   add, shift_left(a, shift)   a 2^shift;   minus_times(a, b, shift)   a - b 2^shift
///   to_float, broadcast(p) of a float, float16 or int32, plus, times, plus_product(sum, a, b),
///   minus_product(sum, a, b)
///   total(a)              the sum of the lanes, in one order
///
/// Two vectors side by side: I8x64, I32x16, F32x16 with dot4_unsigned, dot4_signed, shift_left, to_float, times,
/// plus_product as above, and
///   both(low, high), low_half(a), high_half(a), load_pair(p) of 64 bytes
///   eights(p)             p[0] in the low half, p[copies] in the high one; memory has each value `copies` times
///
/// Everything is exact but what F32x8 rounds.

#include <tutti/core/float16.hpp>
#include <tutti/exec/isa/levels.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#ifdef __wasm_simd128__
#include <wasm_simd128.h>
#endif

#define TUTTI_KERNEL_INLINE TUTTI_ALWAYS_INLINE
namespace tutti::isa::scalar::bytes {
#ifdef __wasm_simd128__
#include <tutti/exec/isa/bytes_simd128.inl>
#else
#include <tutti/exec/isa/bytes_portable.inl>
#endif
}
#undef TUTTI_KERNEL_INLINE

#if TUTTI_HAS_X86
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX2 TUTTI_ALWAYS_INLINE
namespace tutti::isa::avx2::bytes {
#include <tutti/exec/isa/bytes_x86.inl>
}
#undef TUTTI_KERNEL_INLINE

#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX512 TUTTI_ALWAYS_INLINE
namespace tutti::isa::avx512::bytes {
#include <tutti/exec/isa/bytes_x86.inl>
}
#undef TUTTI_KERNEL_INLINE

#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX512_BF16 TUTTI_ALWAYS_INLINE
#define TUTTI_BYTES_VNNI
namespace tutti::isa::avx512_bf16::bytes {
#include <tutti/exec/isa/bytes_x86.inl>
}
#undef TUTTI_BYTES_VNNI
#undef TUTTI_KERNEL_INLINE
#endif
