// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contract of attention over a cache of keys and values, for generation: prompts, single tokens and any mixture.

#include <tutti/core/block_type.hpp>
#include <tutti/kernel/rotary.hpp>

#include <cstdint>

namespace tutti::kernel {

/// Rows are new tokens of any of `slots` sequences. Row r belongs to sequence slot[r] and is its token at position[r];
/// slot -1: a row that fills up a batch, whose result is zeros.
/// Shapes    qkv (rows, (heads + 2 kv_heads) * head_size): Q, then K, then V; cosine, sine (rows, pairs), the rotation
///           of each row's position; keys, values (slots, kv_heads, capacity, head_size); out (rows, heads * head_size)
/// Computes  the first 2 * pairs elements of every head of Q and K are rotated; then keys and values are stored at
///           [slot, head, position] of the cache, those of all rows; then every row attends to positions
///           (position - window, position] of its sequence, to all up to its own where the window is 0, as
///           kernel::Attention does.
/// Requires  positions below a row's own are in the cache, or among the rows. out does not overlap anything else.
/// Types     the cache is F32, F16 or BF16, rounded to nearest even, or Q8_0: then heads have whole blocks of 32
///           elements, and keys and values are (slots, kv_heads, capacity) rows of blocks. Everything else is float32.
/// Numerics  as kernel::Attention. Rows of one sequence whose positions follow one another are worked on together where
///           they are more than `block_product_few_rows`: the order of sums then differs from that of single rows.
/// Errors    invalid_argument (sizes, types), out_of_range (slot, position); nothing is written then.
struct CachedAttention {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_size = 0;
  float scale = 1.0f;
  std::int64_t window = 0;
  std::int64_t pairs = 0;
  RotaryPairing pairing = RotaryPairing::half;
  float const* qkv = nullptr;
  float const* cosine = nullptr;
  float const* sine = nullptr;
  std::int32_t const* slot = nullptr;
  std::int32_t const* position = nullptr;
  std::int64_t slots = 0, capacity = 0;
  BlockType cache = BlockType::f32;
  void* keys = nullptr;
  void* values = nullptr;
  float* out = nullptr;
};

}  // namespace tutti::kernel
