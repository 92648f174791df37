// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What tests of attention on every device share: shapes, and attention with its gradient in double, score by score.

#include <tutti/kernel/attention.hpp>

#include "kernel/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tutti::test {

struct AttentionCase {
  std::int64_t batch, tokens, heads, head_size;
  std::int64_t kv_heads = 0;
  kernel::Product product = kernel::Product::float32;
  std::int64_t channels() const { return heads * head_size; }
  std::int64_t kv() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t row() const { return (heads + 2 * kv()) * head_size; }
};

/// Attention and its gradient in double, score by score.
struct AttentionOracle {
  std::vector<double> out, lse, dqkv;
  AttentionOracle(AttentionCase s, double scale, std::vector<float> const& qkv, std::vector<float> const& dout) {
    std::int64_t const c = s.channels(), d = s.head_size, t_end = s.tokens;
    out.assign(length(s.batch * t_end * c), 0);
    lse.assign(length(s.batch * s.heads * t_end), 0);
    dqkv.assign(length(s.batch * t_end * s.row()), 0);
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        auto const at = [&](std::int64_t t, std::int64_t which, std::int64_t i) {
          std::int64_t const head = which == 0 ? h : s.heads + (which - 1) * s.kv() + h / (s.heads / s.kv());
          return length((b * t_end + t) * s.row() + head * d + i);
        };
        auto const o = [&](std::int64_t t, std::int64_t i) { return length((b * t_end + t) * c + h * d + i); };
        for (std::int64_t t = 0; t < t_end; ++t) {
          std::vector<double> p(length(t + 1));
          double top = -1e300, sum = 0;
          for (std::int64_t u = 0; u <= t; ++u) {
            double score = 0;
            for (std::int64_t i = 0; i < d; ++i) score += double(qkv[at(t, 0, i)]) * double(qkv[at(u, 1, i)]);
            p[length(u)] = score * scale;
            top = std::max(top, score * scale);
          }
          for (double& x : p) sum += x = std::exp(x - top);
          for (double& x : p) x /= sum;
          lse[length((b * s.heads + h) * t_end + t)] = top + std::log(sum);
          double delta = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            for (std::int64_t u = 0; u <= t; ++u) out[o(t, i)] += p[length(u)] * double(qkv[at(u, 2, i)]);
            delta += out[o(t, i)] * double(dout[o(t, i)]);
          }
          for (std::int64_t u = 0; u <= t; ++u) {
            double dp = 0;
            for (std::int64_t i = 0; i < d; ++i) dp += double(dout[o(t, i)]) * double(qkv[at(u, 2, i)]);
            double const ds = scale * p[length(u)] * (dp - delta);
            for (std::int64_t i = 0; i < d; ++i) {
              dqkv[at(t, 0, i)] += ds * double(qkv[at(u, 1, i)]);
              dqkv[at(u, 1, i)] += ds * double(qkv[at(t, 0, i)]);
              dqkv[at(u, 2, i)] += p[length(u)] * double(dout[o(t, i)]);
            }
          }
        }
      }
  }
};

inline double largest(std::vector<double> const& x) {
  double most = 0;
  for (double value : x) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace tutti::test
