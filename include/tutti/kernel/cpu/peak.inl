// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A loop of independent multiply-adds, stamped per instruction set: as fast as the processor can.

/// Returns a value that depends on all of it, so that nothing can be left out.
TUTTI_TARGET inline float multiply_add_loop(std::int64_t rounds) {
  constexpr int chains = 12;  // latency 4 to 5 at two a cycle; fits 16 registers with its two operands
  F32 sum[chains];
  TUTTI_UNROLL
  for (int i = 0; i < chains; ++i) sum[i] = set(static_cast<float>(i));
  F32 const a = set(0.999f), b = set(0.001f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    TUTTI_UNROLL
    for (int i = 0; i < chains; ++i) sum[i] = fma(sum[i], a, b);
  }
  F32 total = sum[0];
  TUTTI_UNROLL
  for (int i = 1; i < chains; ++i) total = add(total, sum[i]);
  return tutti::isa::TUTTI_ISA::sum(total);
}
TUTTI_TARGET inline double flops_per_round() { return 2.0 * 12 * F32::lanes; }

/// The same of `dot2`, where it is one instruction; elsewhere products of bfloat16 are made as float32.
TUTTI_TARGET inline float bfloat16_loop(std::int64_t rounds) {
  if constexpr (!::tutti::isa::TUTTI_ISA::has_dot2) return multiply_add_loop(rounds);
  constexpr int chains = 12;
  F32 sum[chains];
  TUTTI_UNROLL
  for (int i = 0; i < chains; ++i) sum[i] = set(static_cast<float>(i));
  I32 const a = set_i32(0x3f80bf80), b = set_i32(0x3c003c00);  // 1 and -1, by 2^-7 twice: the sums stay
  for (std::int64_t round = 0; round < rounds; ++round) {
    TUTTI_UNROLL
    for (int i = 0; i < chains; ++i) sum[i] = dot2(sum[i], a, b);
  }
  F32 total = sum[0];
  TUTTI_UNROLL
  for (int i = 1; i < chains; ++i) total = add(total, sum[i]);
  return tutti::isa::TUTTI_ISA::sum(total);
}
TUTTI_TARGET inline double bfloat16_flops_per_round() {
  return flops_per_round() * (::tutti::isa::TUTTI_ISA::has_dot2 ? 2 : 1);
}
