// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Causal self-attention on processors: heads are shared out, and parts of a head's queries where heads are few.

#include <tutti/config.hpp>

#if !TUTTI_BODIES
#include <tutti/kernel/cpu/entries.hpp>
#else

#include <tutti/core/block_layout.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/exec/isa/levels.hpp>
#include <tutti/kernel/attention.hpp>
#include <tutti/kernel/cpu/gemm.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace tutti::kernel::cpu {

/// Keys whose scores exist at once; a multiple of every level's tile_rows, so that packed panels never straddle blocks.
inline constexpr std::int64_t attention_keys = 120;
/// Queries that the gradient handles at once.
inline constexpr std::int64_t attention_queries = 96;

/// Floats of working memory for one head on one thread, forward and backward. Counts the largest tiles of any level.
inline std::int64_t attention_scratch(std::int64_t tokens, std::int64_t d) noexcept {
  return attention_keys * 32 + (d + 16) * 64 + 2 * (tokens + 16) * (d + 16) + 64;
}
inline std::int64_t attention_gradient_scratch(std::int64_t tokens, std::int64_t d) noexcept {
  return 4 * (attention_keys + 32) * 96 + 5 * (d + 48) * 96 + 3 * (tokens + 16) * (d + 16) + 512;
}

}  // namespace tutti::kernel::cpu

#define TUTTI_ISA_WITH_BF16
#define TUTTI_ISA_BODY <tutti/kernel/cpu/attention.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY
#undef TUTTI_ISA_WITH_BF16

namespace tutti::kernel::cpu {

/// Where the rows of one sequence's heads begin, and how long they are.
struct AttentionRows {
  std::int64_t group = 1;  ///< heads of Q for each of K and V
  std::int64_t row = 0;    ///< floats of a row of qkv
  std::int64_t q = 0, k = 0, v = 0, out = 0, lse = 0;
  /// Of head `index` of Q, counted over the batch, then the heads.
  template <class A>
  AttentionRows(A const& a, std::int64_t index) {
    std::int64_t const d = a.head_size, kv_heads = a.kv_heads == 0 ? a.heads : a.kv_heads;
    std::int64_t const b = index / a.heads, h = index % a.heads;
    group = a.heads / kv_heads;
    row = (a.heads + 2 * kv_heads) * d;
    q = b * a.tokens * row + h * d;
    k = b * a.tokens * row + (a.heads + h / group) * d;
    v = k + kv_heads * d;
    out = b * a.tokens * a.heads * d + h * d;
    lse = index * a.tokens;
  }
};
template <class A>
void check_heads(A const& a, char const* operation) {
  if (a.kv_heads != 0 && (a.kv_heads < 0 || a.heads % a.kv_heads != 0))
    throw Error(ErrorKind::invalid_argument, operation,
                concat(a.heads, " heads cannot share ", a.kv_heads, " heads of keys and values evenly"));
  if (a.product != Product::float32 && a.product != Product::bfloat16)
    throw Error(ErrorKind::invalid_argument, operation, "products of attention are in float32 or bfloat16");
}

/// Queries [begin, end) of head `index`, counted over the batch, then the heads.
inline void attention_head(exec::Isa isa, Attention const& a, std::int64_t index, std::int64_t begin, std::int64_t end,
                           float* scratch) {
  AttentionRows const at(a, index);
  std::int64_t const out_row = a.heads * a.head_size;
  float const *const q = a.qkv + at.q, *const k = a.qkv + at.k, *const v = a.qkv + at.v;
  float* const out = a.out + at.out;
  float* const lse = a.lse == nullptr ? nullptr : a.lse + at.lse;
  if (a.product == Product::bfloat16)
    TUTTI_DISPATCH_ALL(isa, attention_rounded(a.tokens, a.head_size, a.scale, q, at.row, k, v, at.row, out, out_row,
                                              lse, begin, end, std::int64_t{0}, scratch));
  TUTTI_DISPATCH(isa, attention_plain(a.tokens, a.head_size, a.scale, q, at.row, k, v, at.row, out, out_row, lse, begin,
                                      end, std::int64_t{0}, scratch));
}

/// Contract: tutti/kernel/attention.hpp. Errors: invalid_argument.
TUTTI_INLINE void attention(exec::Context& context, Attention const& a) {
  check_heads(a, "attention");
  std::int64_t const heads = a.batch * a.heads;
  if (heads <= 0 || a.tokens <= 0 || a.head_size <= 0) return;
  // Work on a head grows with the square of the queries' end: many small parts, late ones first, even it out.
  std::int64_t const wanted = heads % context.threads() == 0 ? 1 : (4 * context.threads() + heads - 1) / heads;
  std::int64_t const length = std::max<std::int64_t>(96, ((a.tokens + wanted - 1) / wanted + 31) / 32 * 32);
  std::int64_t const parts = (a.tokens + length - 1) / length, items = heads * parts;
  std::size_t const bytes = static_cast<std::size_t>(attention_scratch(a.tokens, a.head_size)) * sizeof(float);
  std::atomic<std::int64_t> next{0};
  auto const work = [&](int thread) {
    float* const scratch = static_cast<float*>(context.scratch(thread, bytes));
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      std::int64_t const part = parts - 1 - item / heads, begin = part * length;
      attention_head(context.isa(), a, item % heads, begin, std::min(a.tokens, begin + length), scratch);
    }
  };
  if (items == 1)
    work(0);
  else
    context.parallel(work);
}

/// All heads of Q that share head `index` of K and V, counted over the batch, then the heads.
inline void attention_head_gradient(exec::Isa isa, AttentionGradient const& a, std::int64_t index, float* scratch) {
  std::int64_t const group = a.kv_heads == 0 ? 1 : a.heads / a.kv_heads, out_row = a.heads * a.head_size;
  AttentionRows const at(a, index * group);
  float const *const q = a.qkv + at.q, *const k = a.qkv + at.k, *const v = a.qkv + at.v;
  float *const dq = a.dqkv + at.q, *const dk = a.dqkv + at.k, *const dv = a.dqkv + at.v;
  if (a.product == Product::bfloat16)
    TUTTI_DISPATCH_ALL(isa,
                       attention_gradient_rounded(a.tokens, a.head_size, group, a.scale, q, k, v, dq, dk, dv, at.row,
                                                  a.out + at.out, a.dout + at.out, out_row, a.lse + at.lse, scratch));
  TUTTI_DISPATCH(isa, attention_gradient_plain(a.tokens, a.head_size, group, a.scale, q, k, v, dq, dk, dv, at.row,
                                               a.out + at.out, a.dout + at.out, out_row, a.lse + at.lse, scratch));
}

/// Contract: tutti/kernel/attention.hpp. Errors: invalid_argument.
TUTTI_INLINE void attention_gradient(exec::Context& context, AttentionGradient const& a) {
  check_heads(a, "attention_gradient");
  std::int64_t const heads = a.batch * (a.kv_heads == 0 ? a.heads : a.kv_heads);
  if (heads <= 0 || a.tokens <= 0 || a.head_size <= 0) return;
  std::size_t const bytes = static_cast<std::size_t>(attention_gradient_scratch(a.tokens, a.head_size)) * sizeof(float);
  std::atomic<std::int64_t> next{0};
  auto const work = [&](int thread) {
    float* const scratch = static_cast<float*>(context.scratch(thread, bytes));
    for (std::int64_t head; (head = next.fetch_add(1, std::memory_order_relaxed)) < heads;)
      attention_head_gradient(context.isa(), a, head, scratch);
  };
  if (heads == 1)
    work(0);
  else
    context.parallel(work);
}

inline void attention_decode_head(exec::Isa isa, AttentionDecode const& a, std::int64_t index) {
  std::int64_t const d = a.head_size, b = index / a.heads, h = index % a.heads, at = index * a.capacity * d;
  float const* const q = a.q + b * a.q_stride + h * d;
  TUTTI_DISPATCH(isa, attention_decode_head(a.length, d, a.scale, q, a.keys + at, a.values + at, a.out + index * d));
}

/// Contract: tutti/kernel/attention.hpp.
TUTTI_INLINE void attention_decode(exec::Context& context, AttentionDecode const& a) {
  // A thread is worth waking for about 32 K products.
  std::int64_t const grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, 2 * a.length * a.head_size));
  context.parallel_for(a.batch * a.heads, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) attention_decode_head(context.isa(), a, head);
  });
}

}  // namespace tutti::kernel::cpu

#endif
