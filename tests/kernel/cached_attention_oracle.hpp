// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention over a cache in double, for tests of kernels on processors and on devices.

#include <tutti/core/block_dequantise.hpp>
#include <tutti/core/block_quantise.hpp>
#include <tutti/kernel/cached_attention.hpp>

#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::test {

/// Sizes of a model's attention, with how its cache is kept.
struct CachedSizes {
  std::int64_t heads, kv_heads, head_size, pairs, window;
  kernel::RotaryPairing pairing = kernel::RotaryPairing::half;
  BlockType cache = BlockType::f32;
};

/// The rows of one call, by (sequence, tokens) of its parts; -1: rows that fill up.
struct CachedRows {
  std::vector<std::int32_t> slot, position;
  std::vector<float> cosine, sine;

  /// `used`: tokens that each sequence has had, then with these.
  CachedRows(CachedSizes const& sizes, std::vector<std::pair<int, int>> const& call, std::vector<std::int32_t>& used) {
    for (auto const& [sequence, tokens] : call)
      for (int t = 0; t < tokens; ++t) {
        slot.push_back(sequence);
        position.push_back(sequence < 0 ? 0 : used[length(sequence)]++);
      }
    for (std::int64_t i = 0; i < count() * sizes.pairs; ++i) {
      double const angle = double(position[length(i / sizes.pairs)]) / double(1 + i % sizes.pairs);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(slot.size()); }
};

/// What every sequence has seen, in double; and the answers for new tokens.
class CachedOracle {
 public:
  CachedOracle(CachedSizes const& sizes, std::int64_t slots)
      : s_(sizes), keys_(length(slots)), values_(length(slots)) {}

  /// Of all rows; zeros of those that fill up.
  std::vector<double> answers(CachedRows const& rows, std::vector<float> const& qkv) {
    std::int64_t const width = (s_.heads + 2 * s_.kv_heads) * s_.head_size;
    auto const part = [](std::vector<float> const& list, std::int64_t row, std::int64_t each) {
      return std::span(list).subspan(length(row * each), length(each));
    };
    std::vector<double> all;
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::vector<double> one(length(s_.heads * s_.head_size), 0.0);
      if (std::int32_t const sequence = rows.slot[length(row)]; sequence >= 0) {
        add(length(sequence), part(qkv, row, width), part(rows.cosine, row, s_.pairs), part(rows.sine, row, s_.pairs));
        one = answer(length(sequence));
      }
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
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
    add_stored(keys_[slot], std::span(row).subspan(length(q), length(kv)));
    add_stored(values_[slot], std::span(row).subspan(length(q + kv), length(kv)));
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
  void add_stored(std::vector<double>& list, std::span<double const> row) const {
    std::vector<float> numbers(row.begin(), row.end());
    auto const count = static_cast<std::int64_t>(numbers.size());
    std::vector<std::byte> bytes(length(row_bytes(s_.cache, count)));
    quantise(s_.cache, numbers.data(), count, bytes.data());
    dequantise(s_.cache, bytes.data(), count, numbers.data());
    list.insert(list.end(), numbers.begin(), numbers.end());
  }
  CachedSizes s_;
  std::vector<std::vector<double>> keys_, values_;
  std::vector<double> query_;
};

}  // namespace tutti::test
