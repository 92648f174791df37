// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which vector instructions kernels use: chosen once per context, from the processor and `TUTTI_ISA`.

#include <tutti/core/concat.hpp>
#include <tutti/config.hpp>
#include <tutti/core/error.hpp>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

/// What functions of a level are compiled for.
#define TUTTI_TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define TUTTI_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define TUTTI_TARGET_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")))

namespace tutti::exec {

/// In rising order; each level includes those before it.
enum class Isa : unsigned char {
  scalar,       ///< portable C++
  avx2,         ///< AVX2, FMA, F16C
  avx512,       ///< AVX-512 F, BW, DQ, VL
  avx512_bf16,  ///< with BF16 and VNNI
};
inline constexpr std::array<Isa, 4> all_isas{Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16};

constexpr std::string_view name(Isa isa) noexcept {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "unknown";
}

/// Whether this machine (processor and operating system) can run it.
inline bool available(Isa isa) noexcept {
#if TUTTI_HAS_X86
  __builtin_cpu_init();
  bool const avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  bool const avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::scalar: return true;
    case Isa::avx2: return avx2;
    case Isa::avx512: return avx512;
    case Isa::avx512_bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return isa == Isa::scalar;
#endif
}

inline Isa best_isa() noexcept {
  Isa best = Isa::scalar;
  for (Isa isa : all_isas)
    if (available(isa)) best = isa;
  return best;
}

/// The one that TUTTI_ISA names, else the best. Errors: configuration (unknown name), unavailable (not on this
/// machine).
template <class = void>
Isa isa_from_environment() {
  char const* const value = std::getenv("TUTTI_ISA");
  if (value == nullptr || *value == 0) return best_isa();
  for (Isa isa : all_isas) {
    if (name(isa) != value) continue;
    if (!available(isa))
      throw Error(ErrorKind::unavailable, "isa_from_environment",
                  concat("TUTTI_ISA=", value, ", but this processor has only ", name(best_isa()), ". Unset it"));
    return isa;
  }
  throw Error(ErrorKind::configuration, "isa_from_environment",
              concat("TUTTI_ISA=", value, " is unknown. Use scalar, avx2, avx512 or avx512_bf16"));
}

}  // namespace tutti::exec
