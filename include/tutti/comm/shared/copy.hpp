// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies of what another processor has in its caches, or will read there: messages, and blocks in staging memory.

#include <tutti/config.hpp>

#include <cstdint>
#include <cstring>
#include <limits>

#if TUTTI_HAS_X86 && !TUTTI_SANITIZED
#include <cpuid.h>
#endif

namespace tutti::comm::shared {

namespace detail {

#if TUTTI_HAS_X86 && !TUTTI_SANITIZED
/// From how many bytes on `rep movsb` is the faster copy. It asks for lines of other processors' caches earlier than a
/// loop of loads and stores, which waits for each handful: on an Intel Xeon (AVX-512) a message of 2 KiB takes three
/// quarters of the time. The C library takes it from 2112 or 4096 bytes on, as is best for memory of one processor.
/// Only where the processor says that it is fast (Intel 64 and IA-32 Architectures Optimization Reference Manual 3.7.6,
/// "enhanced" and "fast short" REP MOVSB), and of Intel's: others have their faults with lines of other caches.
inline std::int64_t least_string_move() noexcept {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_INTEL_ebx) return never;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return never;
  bool const enhanced = (b >> 9 & 1u) != 0, fast_short = (d >> 4 & 1u) != 0;
  return fast_short ? 768 : enhanced ? 2048 : never;
}
inline std::int64_t const string_moves_from = least_string_move();

inline bool move_string(void* to, void const* from, std::int64_t bytes) noexcept {
  if (bytes < string_moves_from) return false;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
  return true;
}
#else
inline bool move_string(void*, void const*, std::int64_t) noexcept { return false; }  // sanitizers see memcpy alone
#endif

}  // namespace detail

/// `bytes` >= 0, from and to memory that does not overlap.
inline void copy_shared(void* to, void const* from, std::int64_t bytes) noexcept {
  if (bytes == 8) std::memcpy(to, from, 8);  // a library that is asked for so little takes longer than the copy
  else if (bytes == 4) std::memcpy(to, from, 4);
  else if (bytes != 0 && !detail::move_string(to, from, bytes)) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace tutti::comm::shared
