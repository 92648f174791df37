// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Loops of independent multiply-adds, stamped per instruction set, and of loads: as fast as the processor can.

inline constexpr int peak_chains = 12;  // latency 4 to 5 at two a cycle; fits 16 registers with their operands

/// Chains begin at 2 and more: at 0 and 1 a step may change nothing, which is no work for a compiler.
template <Product P>
TUTTI_KERNEL_INLINE auto chain_start(int i) {
  if constexpr (P == Product::float64) return set_f64(i + 2);
  else if constexpr (P == Product::int8) return set_i32(i + 2);
  else return set(static_cast<float>(i + 2));
}
/// The step of one chain: what a product does with two words. Where there is no instruction for its terms, bfloat16 is
/// multiplied as float32, and int8 as 16 bits.
template <Product P, class V>
TUTTI_KERNEL_INLINE V chain_step(V sum) {
  // 1 and -1, by 2^-7 twice: the sums stay.
  if constexpr (P == Product::bfloat16 && ::tutti::isa::TUTTI_ISA::has_dot2)
    return dot2(sum, set_i32(0x3f80bf80), set_i32(0x3c003c00));
  // The sum plus its lowest term: compilers know what constants add up to.
  else if constexpr (P == Product::int8 && ::tutti::isa::TUTTI_ISA::has_dot4) return dot4(sum, sum, set_i32(1));
  else if constexpr (P == Product::int8) return dot2_i16(sum, sum, set_i32(1));
  else if constexpr (P == Product::float64) return fma(sum, set_f64(0.999), set_f64(0.001));
  else return fma(sum, set(0.999f), set(0.001f));
}
/// Returns a value that depends on all of it, so that nothing can be left out.
template <Product P>
TUTTI_TARGET float peak_loop(std::int64_t rounds) {
  using V = decltype(chain_start<P>(0));
  V sum[peak_chains];
  TUTTI_UNROLL
  for (int i = 0; i < peak_chains; ++i) sum[i] = chain_start<P>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    TUTTI_UNROLL
    for (int i = 0; i < peak_chains; ++i) sum[i] = chain_step<P>(sum[i]);
  }
  using Element = std::conditional_t<P == Product::float64, double,
                                     std::conditional_t<P == Product::int8, std::int32_t, float>>;
  Element each[sizeof(V) / sizeof(Element)];
  float total = 0;
  TUTTI_UNROLL
  for (int i = 0; i < peak_chains; ++i) {
    store(each, sum[i]);
    for (Element const value : each) total += static_cast<float>(value);
  }
  return total;
}
template <Product P>
double peak_flops_per_round() {
  int const terms = P == Product::bfloat16 && ::tutti::isa::TUTTI_ISA::has_dot2 ? 2
                    : P != Product::int8                                       ? 1
                    : ::tutti::isa::TUTTI_ISA::has_dot4                        ? 4
                                                                               : 2;
  return 2.0 * peak_chains * (P == Product::float64 ? F64::lanes : F32::lanes) * terms;
}

/// The sum of `count` words modulo 2^32; `count` is a multiple of eight vectors.
TUTTI_TARGET inline std::int32_t read_loop(std::int32_t const* words, std::int64_t count) {
  constexpr int streams = 8;
  I32 sums[streams];
  TUTTI_UNROLL
  for (int j = 0; j < streams; ++j) sums[j] = set_i32(0);
  for (std::int64_t i = 0; i < count; i += streams * F32::lanes) {
    TUTTI_UNROLL
    for (int j = 0; j < streams; ++j) sums[j] = add(sums[j], load(words + i + j * F32::lanes));
  }
  TUTTI_UNROLL
  for (int j = 1; j < streams; ++j) sums[0] = add(sums[0], sums[j]);
  std::int32_t lanes[F32::lanes];
  store(lanes, sums[0]);
  std::uint32_t total = 0;
  for (std::int32_t const lane : lanes) total += static_cast<std::uint32_t>(lane);
  return static_cast<std::int32_t>(total);
}
