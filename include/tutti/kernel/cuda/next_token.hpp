// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The first kernel of a step of generation: which token comes next, and its embedding. What changes from step to step
/// lies in device memory, so that a captured step is replayed without the host.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda {

/// How far a sequence is, in device memory.
struct Sequence {
  std::int32_t length = 0;  ///< positions in the cache
  std::int32_t token = -1;  ///< what the host wants next; negative: the most likely one
};

/// The largest of some logits and its index, -1 where none is finite.
struct Likeliest {
  float logit = -INFINITY;
  std::int32_t index = -1;
};
/// The larger one, of equals that with the lower index: the same whatever the order.
__device__ __forceinline__ Likeliest likelier(Likeliest a, Likeliest b) {
  if (a.index < 0) return b;
  if (b.index < 0) return a;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.index < b.index ? a : b;
}
/// Of a warp, in every lane.
__device__ inline Likeliest warp_likeliest(Likeliest mine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    Likeliest const other{__shfl_xor_sync(0xffffffffu, mine.logit, distance),
                          __shfl_xor_sync(0xffffffffu, mine.index, distance)};
    mine = likelier(mine, other);
  }
  return mine;
}

/// Shapes    table (vocabulary, C), positions (capacity, C); likeliest (candidates); text (capacity); x (C)
/// Computes  token = sequence.token, or the likeliest of the candidates where that is negative;
///           x = table[token] + positions[length]; text[length] = token; then length + 1, and no token wanted. Where no
///           candidate is finite the token is -1 and x is zero.
/// Requires  length < capacity; C is a multiple of 8; pointers aligned to 16 bytes.
template <class T>
struct NextToken {
  std::int64_t channels = 0, vocabulary = 0;
  int candidates = 0;
  T const* table = nullptr;
  T const* positions = nullptr;
  Likeliest const* likeliest = nullptr;
  Sequence* sequence = nullptr;
  std::int32_t* text = nullptr;
  float* x = nullptr;
};

namespace detail {

inline constexpr int next_token_threads = 256;

/// One block: its time is that of two dependent reads.
template <class T>
__global__ void __launch_bounds__(next_token_threads) next_token(__grid_constant__ NextToken<T> const args) {
  __shared__ Likeliest of_warp[next_token_threads / 32];
  begin_kernel();
  int const thread = static_cast<int>(threadIdx.x);
  Sequence const sequence = *args.sequence;
  std::int32_t token = sequence.token;
  Likeliest best;
  if (token < 0)
    for (int index = thread; index < args.candidates; index += next_token_threads)
      best = likelier(best, args.likeliest[index]);
  best = warp_likeliest(best);
  if (thread % 32 == 0) of_warp[thread / 32] = best;
  __syncthreads();  // all have read the sequence, too
  if (token < 0) {
    for (Likeliest const& other : of_warp) best = likelier(best, other);
    token = best.index;
  }
  if (thread == 0) {
    args.text[sequence.length] = token;
    *args.sequence = {sequence.length + 1, -1};
  }
  bool const known = token >= 0 && token < args.vocabulary;
  for (std::int64_t i = std::int64_t{thread} * 4; i < args.channels; i += 4 * next_token_threads) {
    float of_token[4] = {}, of_position[4] = {};
    if (known) {
      load(args.table + token * args.channels + i, of_token);
      load(args.positions + sequence.length * args.channels + i, of_position);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) of_token[j] += of_position[j];
    store(args.x + i, of_token);
  }
}

}  // namespace detail

/// See NextToken. Enqueued, one kernel.
template <class T>
void next_token(Context& context, NextToken<T> const& args) {
  tutti::cuda::launch(context.stream(), {.grid = dim3(1), .block = dim3(detail::next_token_threads)},
                      detail::next_token<T>, args);
}

}  // namespace tutti::kernel::cuda
