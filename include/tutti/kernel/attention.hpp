// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of causal self-attention on packed projections.

#include <tutti/kernel/gemm.hpp>

#include <cstdint>

namespace tutti::kernel {

/// Shapes    qkv (B, T, (heads + 2 * kv_heads) * head_size): rows of Q, then K, then V, each (its heads, head_size);
///           out (B, T, heads * head_size); lse (B, heads, T)
/// Computes  s = scale * q k^T for keys at or before the query; p = softmax(s); out = p v; lse = log sum exp(s). Head h
///           of Q looks at head h / (heads / kv_heads) of K and V.
/// Requires  qkv is finite: what is not may reach queries shortly before it. out does not overlap qkv. lse may be null
///           when no gradient follows. kv_heads divides heads.
/// Numerics  fp32, streaming softmax over key tiles; the order depends on shape, product, ISA alone. With products in
///           bfloat16 q, k, v and exp(s - largest so far) are rounded before they are multiplied; sums, softmax and
///           results are fp32.
/// Types     T is float or, on devices whose kernels say so, bfloat16: then products are of bfloat16 and each element
///           of out is rounded once. lse is float.
/// Source    Dao et al. 2022 (arXiv 2205.14135); Ainslie et al. 2023 (arXiv 2305.13245) for shared keys and values.
template <class T>
struct AttentionOf {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  T const* qkv = nullptr;
  T* out = nullptr;
  float* lse = nullptr;
  std::int64_t kv_heads = 0;  ///< 0: as heads
  Product product = Product::float32;
};
using Attention = AttentionOf<float>;

/// Shapes    as Attention; dout as out, dqkv as qkv, written whole
/// Computes  p = exp(s - lse); dv = p^T dout; dp = dout v^T; ds = p (dp - rowsum(dout * out)); dq = scale ds k;
///           dk = scale ds^T q; dk and dv summed over the heads that share them, in their order
/// Types     as AttentionOf
/// Numerics  no atomics: parallel over (batch, head of K and V). With products in bfloat16 p, scale ds, dout, q, k, v
///           are rounded before they are multiplied.
template <class T>
struct AttentionGradientOf {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  T const* dout = nullptr;
  T const* qkv = nullptr;
  T const* out = nullptr;
  float const* lse = nullptr;
  T* dqkv = nullptr;
  std::int64_t kv_heads = 0;  ///< 0: as heads
  Product product = Product::float32;
};
using AttentionGradient = AttentionGradientOf<float>;

/// One new position per sequence against a cache, for generation.
/// Shapes    q (B, heads, head_size); keys, values (B, heads, capacity, head_size); out (B, heads * head_size)
/// Computes  attention of q over the first `length` positions of each sequence's cache
/// Types     as AttentionOf
template <class T>
struct AttentionDecodeOf {
  std::int64_t batch = 0, length = 0, capacity = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  T const* q = nullptr;
  std::int64_t q_stride = 0;  ///< elements between the queries of two sequences
  T const* keys = nullptr;
  T const* values = nullptr;
  T* out = nullptr;
};
using AttentionDecode = AttentionDecodeOf<float>;

}  // namespace tutti::kernel
