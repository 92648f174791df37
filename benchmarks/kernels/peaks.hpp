// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What this machine can do now: the ceilings that a report puts beside its ratios.

#include <tutti/kernel/cpu/peak.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::bench {

struct Peaks {
  double flops = 0;      ///< fp32 operations a second, all threads
  double read = 0;       ///< bytes a second, sequential reads of memory far larger than the caches, all threads
};

inline double measure_read(exec::Context& context) {
  std::size_t const words = (std::size_t{256} << 20) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> data(words, 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(context.threads()) * 8);
  double best = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    std::int64_t const begin = exec::now_ns();
    context.parallel([&](int thread) {
      std::size_t const t = static_cast<std::size_t>(thread), n = sums.size() / 8;
      std::uint64_t total[8] = {};
      std::size_t const first = words / n * t / 8 * 8, last = words / n * (t + 1) / 8 * 8;
      for (std::size_t i = first; i < last; i += 8)
        for (std::size_t j = 0; j < 8; ++j) total[j] += data[i + j];
      for (std::size_t j = 1; j < 8; ++j) total[0] += total[j];
      sums[t * 8] = total[0];
    });
    double const seconds = static_cast<double>(exec::now_ns() - begin) * 1e-9;
    best = std::max(best, static_cast<double>(words * sizeof(std::uint64_t)) / seconds);
  }
  return sums[0] == 0 ? 0 : best;
}

inline Peaks measure_peaks(exec::Context& context) {
  return {kernel::cpu::measure_peak_flops(context, 5), measure_read(context)};
}

}  // namespace tutti::bench
