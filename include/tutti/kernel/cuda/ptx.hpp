// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What C++ cannot say: tensor cores, asynchronous copies, packed conversions, kernels that overlap, blocks that wait
/// for each other. The one home of inline PTX; the emulation brings a twin with the same functions.
///
/// The first four are operations of a whole warp: its 32 lanes call them together from one place. Letters of fragments:
/// g = lane / 4, t = lane % 4. Reference: PTX ISA, "Matrix multiply-accumulate instructions".

#include <cuda_runtime.h>

#include <cstdint>

namespace tutti::kernel::cuda {

/// d (16, 8) += a (16, 16) b (16, 8); a and b bfloat16, two to a word, the lower index in the lower half; d float.
/// a[0] (g, 2t..2t+1), a[1] (g+8, 2t..), a[2] (g, 2t+8..), a[3] (g+8, 2t+8..); b[0] (2t..2t+1, g), b[1] (2t+8.., g);
/// d[0..1] (g, 2t..2t+1), d[2..3] (g+8, 2t..2t+1).
__device__ __forceinline__ void mma_bfloat16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// d (16, 8) += a (16, 8) b (8, 8); a and b TF32 words of `to_tf32`; d float, placed as above.
/// a[0] (g, t), a[1] (g+8, t), a[2] (g, t+4), a[3] (g+8, t+4); b[0] (t, g), b[1] (t+4, g).
__device__ __forceinline__ void mma_tf32(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r gives the address of row r of matrix i, 16
/// bytes, aligned to 16. words[i]: of matrix i elements (g, 2t) and (g, 2t+1).
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], void const* row) {
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
/// The same of the transposed matrices: words[i] holds elements (2t, g) and (2t+1, g).
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4], void const* row) {
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// Starts copying 16 bytes of global to shared memory, both aligned to 16, past the first-level cache; of the source
/// only `source_bytes` (0 to 16) are read, the rest becomes zero. Shared memory holds it once the thread has waited.
__device__ __forceinline__ void copy_async(void* shared, void const* global, unsigned source_bytes = 16) {
  auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global), "r"(source_bytes)
               : "memory");
}
/// What this thread started since the last call is one group; groups complete in order.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until at most `pending` of this thread's groups are not complete. Other threads see it after a barrier.
template <int pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

/// Two floats as bfloat16 in a word, rounded to nearest, ties to even; `low` in the lower half. NaN gives 0x7fff.
__device__ __forceinline__ std::uint32_t pack_bfloat16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
/// The float rounded to TF32 (10 bits of fraction), ties away from zero.
__device__ __forceinline__ std::uint32_t to_tf32(float value) {
  std::uint32_t word;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(word) : "f"(value));
  return word;
}
/// 2 to the power x; relative error at most 2^-22; subnormal results are 0; -infinity gives 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
/// Lets the kernel that is launched next with `LaunchShape::overlaps` start once all blocks of this one have called
/// this or ended; it sees nothing of what this one writes before it has waited. Nothing before sm_90.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
/// Blocks until the kernel before this one has ended and what it wrote can be read; at once in a kernel that was
/// launched without `LaunchShape::overlaps`.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
/// What every kernel of the library begins with, in every thread, before it leaves or touches memory: the next one may
/// start, and those before have ended. One that left before would let the next one run beside them.
__device__ __forceinline__ void begin_kernel() {
  let_next_kernel_start();
  wait_for_previous_kernel();
}
/// Hands on to other blocks: who waited for `value` sees what this thread wrote before, and what other threads of its
/// block wrote before a barrier that both came to.
__device__ __forceinline__ void hand_on(unsigned* turn, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;\n" ::"l"(turn), "r"(value) : "memory");
}
/// Blocks until another block has handed on `value`. Only a block that has begun already may be waited for: blocks
/// begin in any order, and one that has not begun may find no room as long as those that wait stay. So blocks draw
/// numbers by an atomic count when they begin, take their work by number, and wait for lower numbers alone.
__device__ __forceinline__ void wait_for_turn(unsigned const* turn, unsigned value) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(now) : "l"(turn) : "memory");
  } while (now != value);
}
/// `value`, but computed again wherever this stands: what follows from it is not kept in registers across loops.
__device__ __forceinline__ int computed_anew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace tutti::kernel::cuda
