// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sequences of several documents, of which none sees another: their places in a sequence, and attention within them.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/decompose.hpp>

#include <cstdint>

namespace tutti::nn {

using graph::Var;

/// Of the documents in tokens (B, T), each of which begins with the token `mark`; what stands before the first mark is
/// one too. Make it once outside of the layers' loop.
struct Documents {
  Var number{};    ///< (B, T), int32: of the document that a token is of
  Var position{};  ///< (B, T), int32: of the token in its document, from 0 on

  constexpr Documents() = default;
  constexpr Documents(Var tokens, std::int64_t mark, graph::Where where = graph::Where::current()) {
    using namespace graph;
    Shape const shape = tokens.shape(where);
    if (shape.rank() != 2) refuse(where, "Documents", "tokens (B, T) are needed", shape);
    std::int64_t const rows = shape[0], length = shape[1];
    number = cumsum(convert(equal(tokens, static_cast<double>(mark)), DType::int32, where), 1, false, where);
    Shape const pairs{rows, length, length};
    Var const before = less_equal(iota(*tokens.builder, pairs, 2), iota(*tokens.builder, pairs, 1));
    Var const own = equal(reshape(number, Shape{rows, length, 1}), reshape(number, Shape{rows, 1, length}));
    position = reduce_sum(convert(before && own, DType::int32, where), {2}, where) - 1.0;
  }
};

/// graph::attention in which a query sees the keys, itself and those before it, for which `allowed` holds: of scores'
/// shape (B, heads, T, T) it gives truth values, queries along axis 2 and keys along axis 3.
/// Cost      written in primitives: it keeps numbers (B, heads, T, T) for the backward pass, unlike graph::attention
template <class Allowed>
constexpr Var attention_where(Var qkv, int heads, int kv_heads, Allowed&& allowed,
                              graph::Where where = graph::Where::current()) {
  using namespace graph::detail;
  Shape const packed = qkv.shape(where);
  std::int64_t const all = heads + std::int64_t{2} * kv_heads;
  if (packed.rank() != 3 || heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || packed[2] % all != 0)
    graph::refuse(
        where, "attention",
        "packed projections (B, T, (heads + 2 * kv_heads) * size) with heads a multiple of kv_heads are needed",
        packed);
  std::int64_t const size = packed[2] / all;
  Heads const h = heads_of(qkv, heads, kv_heads);
  Var const s = scores_of(DType::float32, h, reciprocal_root(static_cast<double>(size)));
  Var const e = weights_of(s, causal(*qkv.builder, s.shape()) && allowed(s.shape())).e;
  Var const out = graph::dot_general(e / last_sum(e), h.v, {3}, {1}, {0, 1}, {0, 2}, where);  // (B, heads, T, size)
  return reshape(transpose(out, {0, 2, 1, 3}), packed.with(2, heads * size));
}
/// Tokens see those of their own document alone.
constexpr Var attention(Var qkv, int heads, int kv_heads, Documents const& documents,
                        graph::Where where = graph::Where::current()) {
  auto const own = [&](Shape const& shape) {
    return equal(reshape(documents.number, Shape{shape[0], 1, shape[2], 1}),
                 reshape(documents.number, Shape{shape[0], 1, 1, shape[2]}));
  };
  return attention_where(qkv, heads, kv_heads, own, where);
}
/// Tokens see `window` of them, themselves included.
constexpr Var windowed_attention(Var qkv, int heads, int kv_heads, std::int64_t window,
                                 graph::Where where = graph::Where::current()) {
  auto const near = [&](Shape const& shape) {
    graph::Builder& builder = *qkv.builder;
    return less(iota(builder, shape, 2), iota(builder, shape, 3) + static_cast<double>(window));
  };
  return attention_where(qkv, heads, kv_heads, near, where);
}

}  // namespace tutti::nn
