// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A loop of independent multiply-adds, stamped per instruction set: as fast as the processor can.

/// The step of one chain: a product of floats, or with `Pairs` two of bfloat16.
template <bool Pairs>
TUTTI_KERNEL_INLINE F32 chain_step(F32 sum) {
  // 1 and -1, by 2^-7 twice: the sums stay.
  if constexpr (Pairs) return dot2(sum, set_i32(0x3f80bf80), set_i32(0x3c003c00));
  else return fma(sum, set(0.999f), set(0.001f));
}
/// Returns a value that depends on all of it, so that nothing can be left out.
template <bool Pairs>
TUTTI_TARGET float chains_loop(std::int64_t rounds) {
  constexpr int chains = 12;  // latency 4 to 5 at two a cycle; fits 16 registers with its two operands
  F32 sum[chains];
  TUTTI_UNROLL
  for (int i = 0; i < chains; ++i) sum[i] = set(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    TUTTI_UNROLL
    for (int i = 0; i < chains; ++i) sum[i] = chain_step<Pairs>(sum[i]);
  }
  F32 total = sum[0];
  TUTTI_UNROLL
  for (int i = 1; i < chains; ++i) total = add(total, sum[i]);
  return tutti::isa::TUTTI_ISA::sum(total);
}
TUTTI_TARGET inline float multiply_add_loop(std::int64_t rounds) { return chains_loop<false>(rounds); }
TUTTI_TARGET inline double flops_per_round() { return 2.0 * 12 * F32::lanes; }

/// With `dot2`, where it is one instruction; elsewhere products of bfloat16 are made as float32.
TUTTI_TARGET inline float bfloat16_loop(std::int64_t rounds) {
  return chains_loop<::tutti::isa::TUTTI_ISA::has_dot2>(rounds);
}
TUTTI_TARGET inline double bfloat16_flops_per_round() {
  return flops_per_round() * (::tutti::isa::TUTTI_ISA::has_dot2 ? 2 : 1);
}
