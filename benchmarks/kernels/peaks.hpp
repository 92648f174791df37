// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What this machine can do now: the head of every report, and the ceilings that it puts beside its ratios.

#include "../machine.hpp"

#include <tutti/exec/context.hpp>
#include <tutti/exec/processors.hpp>
#include <tutti/kernel/cpu/peak.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti::bench {

/// Of all threads of a context together, in operations, bytes and seconds; see kernel/cpu/peak.hpp.
struct Peaks {
  double flops = 0;  ///< of float32
  double bfloat16 = 0, float64 = 0, int8 = 0;
  double read = 0;
  double copy = 0;  ///< read and written
  double region = 0, barrier = 0;
};

inline Peaks measure_peaks(exec::Context& context) {
  Peaks peaks;
  peaks.flops = kernel::cpu::measure_peak_flops(context, 5);
  peaks.bfloat16 = kernel::cpu::measure_peak_flops(context, 5, kernel::Product::bfloat16);
  peaks.float64 = kernel::cpu::measure_peak_flops(context, 5, kernel::Product::float64);
  peaks.int8 = kernel::cpu::measure_peak_flops(context, 5, kernel::Product::int8);
  peaks.read = kernel::cpu::measure_read_bandwidth(context);
  peaks.copy = kernel::cpu::measure_copy_bandwidth(context);
  kernel::cpu::TeamCost const cost = kernel::cpu::measure_team_cost(context);
  peaks.region = cost.region, peaks.barrier = cost.barrier;
  return peaks;
}

/// Errors: std::runtime_error.
inline exec::Isa isa_of(std::string_view wanted) {
  for (exec::Isa isa : exec::all_isas)
    if (exec::name(isa) == wanted) return isa;
  throw std::runtime_error("--isa: there are scalar, avx2, avx512 and avx512_bf16");
}

/// How products of these types are made at a level.
inline char const* bfloat16_instruction(exec::Isa isa) {
  return isa == exec::Isa::avx512_bf16 ? "vdpbf16ps" : "float32 multiply-adds";
}
inline char const* int8_instruction(exec::Isa isa) {
  return isa == exec::Isa::avx512_bf16 ? "vpdpbusd" : isa == exec::Isa::scalar ? "portable code" : "vpmaddwd";
}

inline void print_machine(exec::Isa isa) {
  std::printf("%s, %d processors, %s; %s\n", processor_name().c_str(), exec::available_processors(),
              std::string(exec::name(isa)).c_str(), compiler_name());
  double const load = load_average();
  if (load > 1)
    std::printf("load average %.1f in the last minute: where others use the processors, times say little\n", load);
}

inline void print_peaks(int threads, exec::Isa isa, Peaks const& peaks) {
  std::printf(
      "%d thread%s: multiply-adds of float32 %.1f GFLOP/s, of float64 %.1f, of bfloat16 %.1f (%s), of int8 %.1f "
      "(%s);\n",
      threads, threads == 1 ? "" : "s", peaks.flops * 1e-9, peaks.float64 * 1e-9, peaks.bfloat16 * 1e-9,
      bfloat16_instruction(isa), peaks.int8 * 1e-9, int8_instruction(isa));
  std::printf(
      "  reads %.1f GB/s, copies %.1f GB/s (read and written); a parallel region %.0f ns, a barrier in it %.0f ns\n",
      peaks.read * 1e-9, peaks.copy * 1e-9, peaks.region * 1e9, peaks.barrier * 1e9);
}

/// Measures and prints; what follows in a report is compared with what this returns.
inline Peaks print_head(exec::Context& context) {
  print_machine(context.isa());
  Peaks const peaks = measure_peaks(context);
  print_peaks(context.threads(), context.isa(), peaks);
  std::fflush(stdout);
  return peaks;
}

}  // namespace tutti::bench
