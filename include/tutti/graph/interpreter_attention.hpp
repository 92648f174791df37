// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention of packed heads in double, and its gradient.

#include <tutti/core/list.hpp>
#include <tutti/graph/interpreter_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace tutti::graph::naive {

/// Where heads of packed projections lie in one row.
struct PackedHeads {
  std::int64_t tokens, heads, group, size, row;
  PackedHeads(Shape const& qkv, std::int64_t q_heads, std::int64_t kv_heads)
      : tokens(qkv[1]),
        heads(q_heads),
        group(q_heads / kv_heads),
        size(qkv[2] / (q_heads + 2 * kv_heads)),
        row(qkv[2]) {}
  std::int64_t q(std::int64_t b, std::int64_t t, std::int64_t h) const { return (b * tokens + t) * row + h * size; }
  std::int64_t k(std::int64_t b, std::int64_t t, std::int64_t h) const { return q(b, t, heads + h / group); }
  std::int64_t v(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return q(b, t, heads + heads / group + h / group);
  }
  std::int64_t out(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return (b * tokens + t) * heads * size + h * size;
  }
};
/// Attention of every (batch, head, query): f(batch, head, query, exp(s - highest), their sum, highest).
template <class F>
void for_each_query(Values const& qkv, std::int64_t batch, PackedHeads const& at_head, double scale, F f) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < at_head.heads; ++h)
      for (std::int64_t t = 0; t < at_head.tokens; ++t) {
        Values p(at(t + 1));
        double const* q = qkv.data() + at_head.q(b, t, h);
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::int64_t u = 0; u <= t; ++u) {
          double const* k = qkv.data() + at_head.k(b, u, h);
          for (std::int64_t i = 0; i < at_head.size; ++i) p[at(u)] += scale * q[i] * k[i];
          top = std::max(top, p[at(u)]);
        }
        for (double& x : p) sum += x = std::exp(x - top);
        f(b, h, t, p, sum, top);
      }
}

inline List<Values> attention(Call const& c) {
  PackedHeads const head(c.shape(0), c.integer(), c.integer(1));
  std::int64_t const batch = c.shape(0)[0];
  Values const qkv = factors(c, c.in(0));
  Values out(at(batch * head.tokens * head.heads * head.size)), lse(at(batch * head.heads * head.tokens));
  for_each_query(qkv, batch, head, c.real(),
                 [&](std::int64_t b, std::int64_t h, std::int64_t t, Values const& e, double sum, double top) {
                   lse[at((b * head.heads + h) * head.tokens + t)] = top + std::log(sum);
                   Values const rounded = factors(c, e);
                   for (std::int64_t u = 0; u <= t; ++u)
                     for (std::int64_t i = 0; i < head.size; ++i)
                       out[at(head.out(b, t, h) + i)] += rounded[at(u)] / sum * qkv[at(head.v(b, u, h) + i)];
                 });
  return {out, lse};
}

inline List<Values> attention_gradient(Call const& c) {
  PackedHeads const head(c.shape(1), c.integer(), c.integer(1));
  Values const qkv = factors(c, c.in(1)), rounded_dout = factors(c, c.in(0));
  Values d(qkv.size());
  for_each_query(
      qkv, c.shape(1)[0], head, c.real(),
      [&](std::int64_t b, std::int64_t h, std::int64_t t, Values const& e, double sum, double) {
        std::size_t const g = at(head.out(b, t, h)), q = at(head.q(b, t, h)), size = at(head.size);
        double inner = 0;
        for (std::size_t i = 0; i < size; ++i) inner += c.in(0)[g + i] * c.in(2)[g + i];
        Values p = e, ds(e.size());
        for (double& x : p) x /= sum;
        for (std::size_t u = 0; u < p.size(); ++u) {
          std::size_t const v = at(head.v(b, static_cast<std::int64_t>(u), h));
          double dp = 0;
          for (std::size_t i = 0; i < size; ++i) dp += rounded_dout[g + i] * qkv[v + i];
          ds[u] = c.real() * p[u] * (dp - inner);
        }
        p = factors(c, std::move(p));
        ds = factors(c, std::move(ds));
        for (std::size_t u = 0; u < p.size(); ++u) {
          std::size_t const k = at(head.k(b, static_cast<std::int64_t>(u), h)),
                            v = at(head.v(b, static_cast<std::int64_t>(u), h));
          for (std::size_t i = 0; i < size; ++i) {
            d[v + i] += p[u] * rounded_dout[g + i];
            d[q + i] += ds[u] * qkv[k + i];
            d[k + i] += ds[u] * qkv[q + i];
          }
        }
      });
  return {d};
}

}  // namespace tutti::graph::naive
