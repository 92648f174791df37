// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The roofline: each rank copies a message's bytes from one of its buffers to the other, all at the same time.

#include "round.hpp"

#include <tutti/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if TUTTI_HAS_X86
#include <emmintrin.h>
#endif

namespace tutti::bench {

inline Call memcpy_call(Case const& c) {
  auto const bytes = static_cast<std::size_t>(c.bytes());
  return [bytes](Slot const& slot) { std::memcpy(slot.second, slot.first, bytes); };
}

/// The same with stores that do not read the destination first; empty where there are none.
inline Call streamed_copy_call(Case const& c) {
#if TUTTI_HAS_X86
  std::int64_t const bytes = c.bytes();
  return [bytes](Slot const& slot) {
    std::int64_t at = 0;
    for (; at + 64 <= bytes; at += 64)
      for (std::int64_t part = at; part < at + 64; part += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(slot.second + part),
                         _mm_load_si128(reinterpret_cast<__m128i const*>(slot.first + part)));
    std::memcpy(slot.second + at, slot.first + at, static_cast<std::size_t>(bytes - at));
    _mm_sfence();
  };
#else
  static_cast<void>(c);
  return {};
#endif
}

}  // namespace tutti::bench
