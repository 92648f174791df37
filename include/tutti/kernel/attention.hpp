// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of causal self-attention on packed projections.

#include <cstdint>

namespace tutti::kernel {

/// Shapes    qkv (B, T, 3C): rows of Q, then K, then V, each (heads, head_size), C = heads * head_size;
///           out (B, T, C); lse (B, heads, T)
/// Computes  s = scale * q k^T for keys at or before the query; p = softmax(s); out = p v; lse = log sum exp(s)
/// Requires  out does not overlap qkv. lse may be null when no gradient follows.
/// Numerics  fp32, streaming softmax over key tiles; the order depends on shape and ISA alone.
/// Source    Dao et al. 2022 (arXiv 2205.14135).
struct Attention {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  float const* qkv = nullptr;
  float* out = nullptr;
  float* lse = nullptr;
};

/// Shapes    as Attention; dout (B, T, C), dqkv (B, T, 3C), written whole
/// Computes  p = exp(s - lse); dv = p^T dout; dp = dout v^T; ds = p (dp - rowsum(dout * out)); dq = scale ds k;
///           dk = scale ds^T q
/// Numerics  no atomics: parallel over (batch, head)
struct AttentionGradient {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  float const* dout = nullptr;
  float const* qkv = nullptr;
  float const* out = nullptr;
  float const* lse = nullptr;
  float* dqkv = nullptr;
};

/// One new position per sequence against a cache, for generation.
/// Shapes    q (B, heads, head_size); keys, values (B, heads, capacity, head_size); out (B, heads * head_size)
/// Computes  attention of q over the first `length` positions of each sequence's cache
struct AttentionDecode {
  std::int64_t batch = 0, length = 0, capacity = 0, heads = 0, head_size = 0;
  float scale = 1.0f;
  float const* q = nullptr;
  std::int64_t q_stride = 0;  ///< floats between the queries of two sequences
  float const* keys = nullptr;
  float const* values = nullptr;
  float* out = nullptr;
};

}  // namespace tutti::kernel
