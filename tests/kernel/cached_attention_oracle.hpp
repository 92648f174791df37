// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention over a cache in double, for tests of kernels on processors and on devices.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/kernel/cached_attention.hpp>

#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::test {

/// Sizes of a model's attention, with how its cache is kept.
struct CachedSizes {
  std::int64_t heads, kv_heads, head_size, pairs, window;
  kernel::RotaryPairing pairing = kernel::RotaryPairing::half;
  DType cache = DType::float32;
};

/// What every sequence has seen, in double; and the answer for the newest token of one.
class CachedOracle {
 public:
  CachedOracle(CachedSizes const& sizes, std::int64_t slots)
      : s_(sizes), keys_(length(slots)), values_(length(slots)) {}

  void add(std::size_t slot, std::span<float const> qkv, std::span<float const> cosine, std::span<float const> sine) {
    std::vector<double> row(qkv.begin(), qkv.end());
    for (std::int64_t head = 0; head < s_.heads + s_.kv_heads; ++head)
      for (std::int64_t i = 0; i < s_.pairs; ++i) {
        bool const half = s_.pairing == kernel::RotaryPairing::half;
        double& a = row[length(head * s_.head_size + (half ? i : 2 * i))];
        double& b = row[length(head * s_.head_size + (half ? i + s_.pairs : 2 * i + 1))];
        double const c = double{cosine[length(i)]}, s = double{sine[length(i)]}, x = a;
        a = x * c - b * s;
        b = x * s + b * c;
      }
    std::int64_t const q = s_.heads * s_.head_size, kv = s_.kv_heads * s_.head_size;
    query_.assign(row.begin(), row.begin() + q);
    for (std::int64_t i = 0; i < kv; ++i) {
      keys_[slot].push_back(stored(row[length(q + i)]));
      values_[slot].push_back(stored(row[length(q + kv + i)]));
    }
  }
  std::vector<double> answer(std::size_t slot) const {
    std::int64_t const d = s_.head_size, kv = s_.kv_heads * d;
    std::int64_t const count = static_cast<std::int64_t>(keys_[slot].size()) / kv;
    std::int64_t const first = s_.window > 0 ? std::max<std::int64_t>(0, count - s_.window) : 0;
    std::vector<double> out;
    for (std::int64_t head = 0; head < s_.heads; ++head) {
      std::int64_t const shared = head / (s_.heads / s_.kv_heads) * d;
      std::vector<double> p;
      double top = -1e300, total = 0;
      for (std::int64_t t = first; t < count; ++t) {
        double dot = 0;
        for (std::int64_t c = 0; c < d; ++c)
          dot += query_[length(head * d + c)] * keys_[slot][length(t * kv + shared + c)];
        p.push_back(dot * 0.25);
        top = std::max(top, p.back());
      }
      for (double& value : p) total += value = std::exp(value - top);
      for (std::int64_t c = 0; c < d; ++c) {
        double sum = 0;
        for (std::int64_t t = first; t < count; ++t)
          sum += p[length(t - first)] * values_[slot][length(t * kv + shared + c)];
        out.push_back(sum / total);
      }
    }
    return out;
  }

 private:
  double stored(double x) const {
    float const rounded = static_cast<float>(x);
    if (s_.cache == DType::float16) return double{static_cast<float>(float16(rounded))};
    if (s_.cache == DType::bfloat16) return double{static_cast<float>(bfloat16(rounded))};
    return double{rounded};
  }
  CachedSizes s_;
  std::vector<std::vector<double>> keys_, values_;
  std::vector<double> query_;
};

}  // namespace tutti::test
