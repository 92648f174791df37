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

/// See kernel::Dropout. Cost: 8 bytes of memory traffic and a quarter of a Philox block an element.
inline void dropout(exec::Context& context, Dropout const& args) {
  std::uint32_t const threshold = dropout_threshold(args.p);
  float const scale = static_cast<float>(dropout_scale(args.p));
  auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  std::uint64_t const seed = *args.seed, first = *args.first;
  std::uint32_t const step = low(*args.step), stream = low(*args.stream);
  context.parallel_for(args.size, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      std::uint64_t const position = first + static_cast<std::uint64_t>(i), block = position / 4;
      auto const four = philox4x32({low(block), low(block >> 32), step, stream}, {low(seed), low(seed >> 32)});
      std::int64_t const count = std::min(end - i, static_cast<std::int64_t>(4 - position % 4));
      for (std::int64_t k = 0; k < count; ++k)
        args.y[i + k] = four[position % 4 + static_cast<std::uint64_t>(k)] < threshold ? 0.0f : args.x[i + k] * scale;
      i += count;
    }
  });
}

}  // namespace tutti::kernel::cpu
