// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Causal attention and its gradient in primitives.

#include <tutti/graph/decompose_parts.hpp>

#include <cstdint>

namespace tutti::graph::detail {

/// Q, K and V as (B, T, heads, size), keys and values repeated for the heads that share them.
struct Heads {
  Var q, k, v;
};
constexpr Heads heads_of(Var qkv, std::int64_t heads, std::int64_t kv_heads) {
  std::int64_t const batch = qkv.shape()[0], tokens = qkv.shape()[1], size = qkv.shape()[2] / (heads + 2 * kv_heads);
  auto const part = [&](std::int64_t first, std::int64_t count) {
    Var const rows = slice(qkv, {0, 0, first * size}, {batch, tokens, (first + count) * size});
    if (count == heads) return reshape(rows, Shape{batch, tokens, heads, size});
    Shape const each{batch, tokens, kv_heads, 1, size}, repeated = each.with(3, heads / kv_heads);
    return reshape(reshape(rows, each) + constant(*qkv.builder, 0, repeated, qkv.dtype()),
                   Shape{batch, tokens, heads, size});
  };
  return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
}
/// (B, heads, T, T): true where the key is not after the query.
constexpr Var causal(Builder& builder, Shape const& shape) {
  return less_equal(iota(builder, shape, 3), iota(builder, shape, 2));
}
constexpr Var scores_of(DType product, Heads const& h, double scale) {
  return dot_general_of(product, h.q, h.k, {3}, {3}, {0, 2}, {0, 2}) * scale;
}

/// exp(scores - top) where a key is allowed, else 0, and top, the largest allowed score of a query, (B, heads, T, 1).
struct Weights {
  Var top, e;
};
constexpr Weights weights_of(Var scores, Var allowed) {
  Shape const kept = scores.shape().with(3, 1);
  Var const top = stop_gradient(reshape(reduce_max(select(allowed, scores, -1e30), {3}), kept));
  return {top, select(allowed, exp(select(allowed, scores - top, 0.0)), 0.0)};
}

constexpr List<Var> written_attention(Parts const& p) {
  Var const qkv = p.in(0);
  DType const product = product_type(p.graph, p.id);
  Heads const h = heads_of(qkv, p.integer(), p.integer(1));
  Var const s = scores_of(product, h, p.real());
  Weights const weights = weights_of(s, causal(p.builder, s.shape()));
  Var const top = weights.top, e = weights.e, sum = last_sum(e);
  Var const out = dot_general_of(product, e, h.v, {3}, {1}, {0, 1}, {0, 2}) / sum;  // (B, heads, T, size)
  std::int64_t const channels = p.integer() * h.q.shape()[3];
  return {reshape(transpose(out, {0, 2, 1, 3}), qkv.shape().with(2, channels)),
          reshape(log(sum) + top, leading(s.shape()))};
}
constexpr List<Var> written_attention_gradient(Parts const& p) {
  Var const qkv = p.in(1);
  DType const product = product_type(p.graph, p.id);
  Heads const h = heads_of(qkv, p.integer(), p.integer(1));
  Var const s = scores_of(product, h, p.real()), allowed = causal(p.builder, s.shape());
  Shape const kept = s.shape().with(3, 1);
  Var const probability = select(allowed, exp(select(allowed, s - reshape(p.in(3), kept), 0.0)), 0.0);
  Var const dout = reshape(p.in(0), h.q.shape()), out = reshape(p.in(2), h.q.shape());
  Var const inner = reshape(transpose(reduce_sum(dout * out, {3}), {0, 2, 1}), kept);
  Var const dp = dot_general_of(product, dout, h.v, {3}, {3}, {0, 2}, {0, 2});
  Var const ds = probability * (dp - inner) * p.real();
  // (B, heads, T, size) back to rows, summed over the heads that share them where `count` are left
  auto const rows = [&](Var x, std::int64_t count) {
    Shape const all = x.shape();
    std::int64_t const size = all[3];
    if (count != all[1])
      x = reduce_sum(reshape(x, Shape{all[0], count, all[1] / count, all[2], size}), {2});
    return reshape(transpose(x, {0, 2, 1, 3}), qkv.shape().with(2, count * size));
  };
  Var const dq = rows(dot_general_of(product, ds, h.k, {3}, {1}, {0, 1}, {0, 2}), p.integer()),
            dk = rows(dot_general_of(product, ds, h.q, {2}, {1}, {0, 1}, {0, 2}), p.integer(1));
  Var const dv = rows(dot_general_of(product, probability, dout, {2}, {1}, {0, 1}, {0, 2}), p.integer(1));
  return {concatenate({dq, dk, dv}, 2)};
}

}  // namespace tutti::graph::detail
