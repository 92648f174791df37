// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Dropout on the CPU.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/dropout.hpp>
#include <tutti/tensor/random.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::kernel::cpu {

namespace detail {

/// Elements of so many blocks of four words from `block` on, whose rounds go side by side: each waits for its last.
inline constexpr int dropout_lanes = 16;
inline void dropout_blocks(float const* x, float* y, std::uint64_t block, std::uint64_t seed, std::uint32_t step,
                           std::uint32_t stream, std::uint32_t threshold, float scale) {
  constexpr int lanes = dropout_lanes;
  std::uint32_t a[lanes], b[lanes], c[lanes], d[lanes];
  for (int k = 0; k < lanes; ++k) {
    std::uint64_t const number = block + static_cast<std::uint64_t>(k);
    a[k] = static_cast<std::uint32_t>(number);
    b[k] = static_cast<std::uint32_t>(number >> 32);
    c[k] = step;
    d[k] = stream;
  }
  std::uint32_t low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int k = 0; k < lanes; ++k) {
      std::uint64_t const p = std::uint64_t{0xD2511F53u} * a[k], q = std::uint64_t{0xCD9E8D57u} * c[k];
      std::uint32_t const next_a = static_cast<std::uint32_t>(q >> 32) ^ b[k] ^ low;
      std::uint32_t const next_c = static_cast<std::uint32_t>(p >> 32) ^ d[k] ^ high;
      a[k] = next_a;
      b[k] = static_cast<std::uint32_t>(q);
      c[k] = next_c;
      d[k] = static_cast<std::uint32_t>(p);
    }
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  for (int k = 0; k < lanes; ++k) {
    y[4 * k] = a[k] < threshold ? 0.0f : x[4 * k] * scale;
    y[4 * k + 1] = b[k] < threshold ? 0.0f : x[4 * k + 1] * scale;
    y[4 * k + 2] = c[k] < threshold ? 0.0f : x[4 * k + 2] * scale;
    y[4 * k + 3] = d[k] < threshold ? 0.0f : x[4 * k + 3] * scale;
  }
}

}  // namespace detail

/// See kernel::Dropout. Cost: 8 bytes of memory traffic and a quarter of a Philox block an element.
inline void dropout(exec::Context& context, Dropout const& args) {
  std::uint32_t const threshold = dropout_threshold(args.p);
  float const scale = static_cast<float>(dropout_scale(args.p));
  auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  std::uint64_t const seed = *args.seed, first = *args.first;
  std::uint32_t const step = low(*args.step), stream = low(*args.stream);
  constexpr std::int64_t together = 4 * detail::dropout_lanes;
  context.parallel_for(args.size, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      std::uint64_t const position = first + static_cast<std::uint64_t>(i), block = position / 4;
      if (position % 4 == 0 && end - i >= together) {
        detail::dropout_blocks(args.x + i, args.y + i, block, seed, step, stream, threshold, scale);
        i += together;
        continue;
      }
      auto const four = philox4x32({low(block), low(block >> 32), step, stream}, {low(seed), low(seed >> 32)});
      std::int64_t const count = std::min(end - i, static_cast<std::int64_t>(4 - position % 4));
      for (std::int64_t k = 0; k < count; ++k)
        args.y[i + k] = four[static_cast<std::size_t>(position % 4) + static_cast<std::size_t>(k)] < threshold
                            ? 0.0f
                            : args.x[i + k] * scale;
      i += count;
    }
  });
}

}  // namespace tutti::kernel::cpu
