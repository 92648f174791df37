// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of token embedding with learned positions.

#include <cstdint>

namespace tutti::kernel {

/// Shapes    tokens (B, T) in [0, vocabulary); table (vocabulary, C); positions (at least T, C) or null; out (B, T, C)
/// Computes  out[b, t] = table[tokens[b, t]] + positions[t]
/// Errors    out_of_range, naming position and token, before anything is written.
struct Embedding {
  std::int64_t batch = 0, tokens_per_row = 0, channels = 0, vocabulary = 0;
  std::int32_t const* tokens = nullptr;
  float const* table = nullptr;
  float const* positions = nullptr;
  float* out = nullptr;
};

/// Shapes    dout (B, T, C); dtable (vocabulary, C); dpositions (`position_rows`, C)
/// Computes  dtable[tokens[b, t]] += dout[b, t] (accumulates onto dtable; `zero_table` clears it first);
///           dpositions[t] = sum over b of dout[b, t] for t < T, rows from T to position_rows are set to zero
/// Numerics  every table row is summed in the order of (b, t): bitwise the same for any number of threads. Null outputs
/// are skipped.
struct EmbeddingGradient {
  std::int64_t batch = 0, tokens_per_row = 0, channels = 0, vocabulary = 0, position_rows = 0;
  std::int32_t const* tokens = nullptr;
  float const* dout = nullptr;
  float* dtable = nullptr;
  float* dpositions = nullptr;
  bool zero_table = false;
};

}  // namespace tutti::kernel
