// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The ceilings that utilisation is measured against: multiply-adds, reads and copies of this machine, now, and what it
/// costs to use its threads.

#include <tutti/exec/context.hpp>
#include <tutti/exec/scratch.hpp>
#include <tutti/kernel/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY <tutti/kernel/cpu/peak.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

namespace detail {
inline float peak_loop(exec::Isa isa, Product product, std::int64_t rounds) {
  switch (product) {
    case Product::float32: TUTTI_DISPATCH(isa, peak_loop<Product::float32>(rounds));
    case Product::bfloat16: TUTTI_DISPATCH_ALL(isa, peak_loop<Product::bfloat16>(rounds));
    case Product::int8: TUTTI_DISPATCH_ALL(isa, peak_loop<Product::int8>(rounds));
    case Product::float64: TUTTI_DISPATCH(isa, peak_loop<Product::float64>(rounds));
  }
  return 0;
}
inline double peak_flops_per_round(exec::Isa isa, Product product) {
  switch (product) {
    case Product::float32: TUTTI_DISPATCH(isa, peak_flops_per_round<Product::float32>());
    case Product::bfloat16: TUTTI_DISPATCH_ALL(isa, peak_flops_per_round<Product::bfloat16>());
    case Product::int8: TUTTI_DISPATCH_ALL(isa, peak_flops_per_round<Product::int8>());
    case Product::float64: TUTTI_DISPATCH(isa, peak_flops_per_round<Product::float64>());
  }
  return 0;
}
inline std::int32_t read_loop_of(exec::Isa isa, std::int32_t const* words, std::int64_t count) {
  TUTTI_DISPATCH_ALL(isa, read_loop(words, count));
}

/// Seconds of f(), at least a nanosecond.
template <class F>
double seconds_of(F&& f) {
  std::int64_t const begin = exec::now_ns();
  f();
  return static_cast<double>(std::max<std::int64_t>(exec::now_ns() - begin, 1)) * 1e-9;
}
/// The part of `bytes` that belongs to a thread, in pages.
struct BytePart {
  std::size_t first = 0, size = 0;
  BytePart(std::size_t bytes, int thread, int threads) {
    constexpr std::size_t page = 4096;
    std::size_t const share = std::max(bytes / static_cast<std::size_t>(threads) / page, std::size_t{1}) * page;
    first = std::min(share * static_cast<std::size_t>(thread), bytes);
    size = thread + 1 == threads ? bytes - first : std::min(share, bytes - first);
  }
};
/// Whole pages of them, which each thread has touched its part of.
template <class = void>
std::byte* touched(exec::Context& context, exec::Scratch& memory, std::size_t bytes) {
  auto* const data = static_cast<std::byte*>(memory.reserve(bytes));
  context.parallel([&](int thread) {
    BytePart const part(bytes, thread, context.threads());
    std::memset(data + part.first, 1, part.size);
  });
  return data;
}
}  // namespace detail

/// Operations a second (two for each product that is added) of products of that kind that all threads of the context
/// reach together, the best of `tries` measurements of about 10 ms each.
inline double measure_peak_flops(exec::Context& context, int tries = 3, Product product = Product::float32) {
  std::int64_t rounds = 100'000;
  float volatile sink = 0;
  double best = 0;
  for (int attempt = 0; attempt <= tries; ++attempt) {
    double const seconds = detail::seconds_of([&] {
      context.parallel([&](int thread) {
        float const result = detail::peak_loop(context.isa(), product, rounds);
        if (thread == 0) sink = result;
      });
    });
    double const flops =
        detail::peak_flops_per_round(context.isa(), product) * static_cast<double>(rounds) * context.threads();
    if (attempt == 0)
      rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rounds) * 0.01 / seconds));
    else best = std::max(best, flops / seconds);
  }
  static_cast<void>(sink);
  return best;
}

/// Bytes a second that all threads together read in order from memory far larger than caches; the best of `tries`.
/// Takes `bytes` of memory, in huge pages where the system gives them.
template <class = void>
double measure_read_bandwidth(exec::Context& context, int tries = 4, std::size_t bytes = std::size_t{256} << 20) {
  exec::Scratch memory;
  std::byte const* const data = detail::touched(context, memory, bytes);
  std::int32_t volatile sink = 0;
  double best = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    double const seconds = detail::seconds_of([&] {
      context.parallel([&](int thread) {
        constexpr std::size_t step = 8 * 64;  // of the loop, at any level
        detail::BytePart const part(bytes / step * step, thread, context.threads());
        std::int32_t const sum = detail::read_loop_of(
            context.isa(), reinterpret_cast<std::int32_t const*>(data + part.first),
            static_cast<std::int64_t>(part.size / sizeof(std::int32_t)));
        if (thread == 0) sink = sum;
      });
    });
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  static_cast<void>(sink);
  return best;
}

/// Bytes a second, read and written, that all threads together move from one place far larger than caches to another;
/// the best of `tries` copies. Takes twice `bytes` of memory, in huge pages where the system gives them.
template <class = void>
double measure_copy_bandwidth(exec::Context& context, int tries = 4, std::size_t bytes = std::size_t{128} << 20) {
  exec::Scratch source, target;
  std::byte const* const from = detail::touched(context, source, bytes);
  std::byte* const to = detail::touched(context, target, bytes);
  double best = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    double const seconds = detail::seconds_of([&] {
      context.parallel([&](int thread) {
        detail::BytePart const part(bytes, thread, context.threads());
        std::memcpy(to + part.first, from + part.first, part.size);
      });
    });
    best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

/// Seconds of one parallel region that does nothing, and of one barrier inside of a region: the best of `tries` rounds
/// of 1000. On one thread a region is a call, and a barrier nothing.
struct TeamCost {
  double region = 0, barrier = 0;
};
template <class = void>
TeamCost measure_team_cost(exec::Context& context, int tries = 5) {
  constexpr int times = 1000;
  TeamCost best{1e9, 1e9};
  for (int attempt = 0; attempt < tries; ++attempt) {
    double const regions = detail::seconds_of([&] {
      for (int i = 0; i < times; ++i) context.parallel([](int) {});
    });
    double const barriers = detail::seconds_of([&] {
      context.parallel([&](int) {
        for (int i = 0; i < times; ++i) context.barrier();
      });
    });
    best.region = std::min(best.region, regions / times);
    best.barrier = std::min(best.barrier, barriers / times);
  }
  return best;
}

}  // namespace tutti::kernel::cpu
