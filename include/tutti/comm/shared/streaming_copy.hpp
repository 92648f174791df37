// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies of large results, which go around the caches.

#include <tutti/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::comm::shared {

/// Copies past the caches: what is larger than they are would be read into them only to be overwritten. Visible to
/// others after `streams_done`. Fetches as many bytes from `ahead`, which will be read next, into the caches: memory
/// would read nothing while it writes.
inline void copy_streaming(void* to, void const* from, std::int64_t bytes, void const* ahead) noexcept {
#if TUTTI_HAS_X86
  using Vector [[gnu::vector_size(16)]] = long long;
  if (reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    auto* const out = static_cast<std::byte*>(to);
    auto const* const in = static_cast<std::byte const*>(from);
    auto const stream = [out, in](std::int64_t at) {
      Vector value;
      std::memcpy(&value, in + at, 16);
#if defined(__clang__)
      __builtin_nontemporal_store(value, reinterpret_cast<Vector*>(out + at));
#else
      __builtin_ia32_movntdq(reinterpret_cast<Vector*>(out + at), value);
#endif
    };
    std::int64_t at = 0;
    for (; at + 64 <= bytes; at += 64) {  // a cache line at a time
      __builtin_prefetch(static_cast<std::byte const*>(ahead) + at);
      stream(at);
      stream(at + 16);
      stream(at + 32);
      stream(at + 48);
    }
    std::memcpy(out + at, in + at, static_cast<std::size_t>(bytes - at));
    return;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void streams_done() noexcept {
#if TUTTI_HAS_X86
  __builtin_ia32_sfence();
#endif
}

}  // namespace tutti::comm::shared
