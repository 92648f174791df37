// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Includes TUTTI_ISA_BODY once per instruction-set level into tutti::kernel::cpu::<level>. No include guard: it is the
/// loop.
///
///   #define TUTTI_ISA_BODY <tutti/kernel/cpu/layer_norm.inl>
///   #include <tutti/exec/isa/foreach.inl>
///   #undef TUTTI_ISA_BODY
///
/// In the body, TUTTI_ISA is the level's name, TUTTI_TARGET the attribute every function carries (large ones also
/// `inline`), TUTTI_KERNEL_INLINE the one for small ones; the names of levels.hpp are visible. The body includes
/// nothing. Its functions see those of other bodies that were stamped before. Define TUTTI_ISA_WITH_BF16 around the
/// include to stamp avx512_bf16 too, where dot2 and dot4 are single instructions.

#include <tutti/exec/isa/levels.hpp>

#ifndef TUTTI_ISA_BODY
#error "define TUTTI_ISA_BODY as the <header> to stamp"
#endif

#define TUTTI_ISA scalar
#define TUTTI_TARGET
#define TUTTI_KERNEL_INLINE TUTTI_ALWAYS_INLINE
namespace tutti::kernel::cpu::scalar {
#include <tutti/exec/isa/names.inl>
#include TUTTI_ISA_BODY
}
#undef TUTTI_ISA
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE

#if TUTTI_HAS_X86
#define TUTTI_ISA avx2
#define TUTTI_TARGET TUTTI_TARGET_AVX2
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX2 TUTTI_ALWAYS_INLINE
namespace tutti::kernel::cpu::avx2 {
#include <tutti/exec/isa/names.inl>
#include TUTTI_ISA_BODY
}
#undef TUTTI_ISA
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE

#define TUTTI_ISA avx512
#define TUTTI_TARGET TUTTI_TARGET_AVX512
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX512 TUTTI_ALWAYS_INLINE
namespace tutti::kernel::cpu::avx512 {
#include <tutti/exec/isa/names.inl>
#include TUTTI_ISA_BODY
}
#undef TUTTI_ISA
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE

#ifdef TUTTI_ISA_WITH_BF16
#define TUTTI_ISA avx512_bf16
#define TUTTI_TARGET TUTTI_TARGET_AVX512_BF16
#define TUTTI_KERNEL_INLINE TUTTI_TARGET_AVX512_BF16 TUTTI_ALWAYS_INLINE
namespace tutti::kernel::cpu::avx512_bf16 {
#include <tutti/exec/isa/names.inl>
#include TUTTI_ISA_BODY
}
#undef TUTTI_ISA
#undef TUTTI_TARGET
#undef TUTTI_KERNEL_INLINE
#endif
#endif
