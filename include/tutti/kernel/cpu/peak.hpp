// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The ceilings that utilisation is measured against: multiply-adds and copies of this machine, now.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/gemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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
}  // namespace detail

/// Operations a second of products of that kind that all threads of the context reach together, the best of `tries`
/// measurements of about 10 ms each.
inline double measure_peak_flops(exec::Context& context, int tries = 3, Product product = Product::float32) {
  std::int64_t rounds = 100'000;
  float volatile sink = 0;
  double best = 0;
  for (int attempt = 0; attempt <= tries; ++attempt) {
    std::int64_t const begin = exec::now_ns();
    context.parallel([&](int thread) {
      float const result = detail::peak_loop(context.isa(), product, rounds);
      if (thread == 0) sink = result;
    });
    double const seconds = static_cast<double>(std::max<std::int64_t>(exec::now_ns() - begin, 1)) * 1e-9;
    double const flops =
        detail::peak_flops_per_round(context.isa(), product) * static_cast<double>(rounds) * context.threads();
    if (attempt == 0)
      rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rounds) * 0.01 / seconds));
    else best = std::max(best, flops / seconds);
  }
  static_cast<void>(sink);
  return best;
}

/// Bytes a second, read and written, that all threads together move from one place far larger than caches to another;
/// the best of `tries` copies. Takes twice `bytes` of memory.
inline double measure_copy_bandwidth(exec::Context& context, int tries = 4,
                                     std::size_t bytes = std::size_t{128} << 20) {
  std::vector<std::byte> from(bytes), to(bytes);
  double best = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    std::int64_t const begin = exec::now_ns();
    context.parallel([&](int thread) {
      auto const t = static_cast<std::size_t>(thread), threads = static_cast<std::size_t>(context.threads());
      std::size_t const first = bytes / threads * t;
      std::memcpy(to.data() + first, from.data() + first, bytes / threads);
    });
    double const seconds = static_cast<double>(std::max<std::int64_t>(exec::now_ns() - begin, 1)) * 1e-9;
    best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace tutti::kernel::cpu
