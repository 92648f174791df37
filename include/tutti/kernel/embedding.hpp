// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of token embedding with learned positions.

#include <cstdint>

namespace tutti::kernel {

/// Shapes    tokens (B, T) in [0, vocabulary); table (vocabulary, C); positions (at least T, C) or null; out (B, T, C)
///           T of activations and P of parameters are float, on a GPU also bfloat16
/// Computes  out[b, t] = table[tokens[b, t]] + positions[t]
/// Errors    out_of_range, naming position and token, before anything is written; of a GPU at the end of the step, and
///           what the token stands for is zero.
template <class T, class P = float>
struct EmbeddingOf {
  std::int64_t batch = 0, tokens_per_row = 0, channels = 0, vocabulary = 0;
  std::int32_t const* tokens = nullptr;
  P const* table = nullptr;
  P const* positions = nullptr;
  T* out = nullptr;
};
using Embedding = EmbeddingOf<float>;

/// Shapes    dout (B, T, C); dtable (vocabulary, C); dpositions (`position_rows`, C)
/// Computes  dtable[tokens[b, t]] += dout[b, t] (accumulates onto dtable; `zero_table` clears it first);
///           dpositions[t] = sum over b of dout[b, t] for t < T, rows from T to position_rows are set to zero
/// Numerics  every table row is summed in the order of (b, t), on a GPU by runs of 32 tokens of a stable sort: bitwise
///           the same for any number of threads. Null outputs are skipped.
template <class T>
struct EmbeddingGradientOf {
  std::int64_t batch = 0, tokens_per_row = 0, channels = 0, vocabulary = 0, position_rows = 0;
  std::int32_t const* tokens = nullptr;
  T const* dout = nullptr;
  float* dtable = nullptr;
  float* dpositions = nullptr;
  bool zero_table = false;
};
using EmbeddingGradient = EmbeddingGradientOf<float>;

}  // namespace tutti::kernel
