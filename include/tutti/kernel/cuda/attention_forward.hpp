// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Causal attention with a streaming softmax on mma.sync: every head size, float and bfloat16, from sm_80 on.
///
/// A block of four warps owns 128 or 64 queries of one head, a warp 32 or 16 of them; while it works on a tile of keys
/// and their values, the next one arrives by cp.async in a second stage, and it waits once a tile. With 32 queries a
/// warp's fragment of keys feeds four instructions, so that tensor cores, not shared memory, bound it. Head size 128 in
/// bfloat16: sums 128 registers, scores 64 keys x 32 queries 64; shared memory 96 KiB, half of that for head size 64:
/// two blocks on each SM of sm_90 by registers. Blocks of the last queries, which see most keys, come first; a warp
/// leaves out tiles that lie behind its queries.

#include <tutti/kernel/cuda/attention_tile.hpp>
#include <tutti/kernel/cuda/ptx.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda::detail {

template <class T>
struct AttentionForwardArguments {
  AttentionSizes sizes;
  float scale = 0;  ///< times log2(e)
  T const* qkv = nullptr;
  T* out = nullptr;
  float* lse = nullptr;
};

/// How a block of the forward kernel cuts its work.
template <class T, int Planes, int Width>
struct AttentionForwardShape {
  static constexpr int warps = 4;
  static constexpr int row_tiles = sizeof(T) == 4 ? 1 : 2;
  static constexpr int queries = warps * 16 * row_tiles;
  static constexpr int keys = sizeof(T) == 4 ? 32 : 64;  // floats take twice the room
  static constexpr int stage = 2 * Tile<T, Width>::bytes(keys);
  static constexpr int shared = Tile<T, Width>::bytes(queries) + 2 * stage;
};

template <class T, int Planes, int Width>
__global__ void __launch_bounds__(128, 2)
    attention_forward(__grid_constant__ AttentionForwardArguments<T> const arguments) {
  begin_kernel();
  using Shape = AttentionForwardShape<T, Planes, Width>;
  constexpr int row_tiles = Shape::row_tiles, keys = Shape::keys, threads = 32 * Shape::warps;
  AttentionSizes const& sizes = arguments.sizes;
  int const head = static_cast<int>(blockIdx.x), tokens = sizes.tokens;
  int const first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::queries;
  int const lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 * row_tiles;
  int const size = sizes.head_size;

  unsigned char* const memory = tutti::cuda::dynamic_shared<unsigned char>();
  Tile<T, Width> const queries(memory);
  auto const key_tile = [&](int step) {
    return Tile<T, Width>(memory + Tile<T, Width>::bytes(Shape::queries) + step % 2 * Shape::stage);
  };
  auto const value_tile = [&](int step) {
    return Tile<T, Width>(memory + Tile<T, Width>::bytes(Shape::queries) + step % 2 * Shape::stage + Shape::stage / 2);
  };
  T const* const q = arguments.qkv + sizes.query(head) + first * sizes.row();
  T const* const k = arguments.qkv + sizes.key(head / (sizes.heads / sizes.kv_heads));
  T const* const v = k + std::int64_t{sizes.kv_heads} * size;
  auto const fetch = [&](int step) {
    int const key = step * keys;
    key_tile(step).template fetch<keys, threads>(k + key * sizes.row(), sizes.row(), tokens - key, size);
    value_tile(step).template fetch<keys, threads>(v + key * sizes.row(), sizes.row(), tokens - key, size);
  };

  float sums[row_tiles][Width / 8][4], largest[row_tiles][2], total[row_tiles][2];
  clear(sums);
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) largest[tile][half] = -INFINITY, total[tile][half] = 0;

  int const end = first + Shape::queries < tokens ? first + Shape::queries : tokens;  // of keys in sight
  int const steps = (end + keys - 1) / keys;
  queries.template fetch<Shape::queries, threads>(q, sizes.row(), tokens - first, size);
  fetch(0);
  copy_async_commit();
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there, and the other one has been used
    if (step + 1 < steps) fetch(step + 1);
    copy_async_commit();

    int const key = step * keys;
    if (key > first + row + 16 * row_tiles - 1) continue;  // behind this warp's queries
    float scores[row_tiles][keys / 8][4];
    clear(scores);
    multiply_rows<Planes>(scores, queries, row, key_tile(step));
    if (key + keys - 1 > first + row) {
      int const place = computed_anew(lane);
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
        for (int column = 0; column < keys / 8; ++column)
#pragma unroll
          for (int index = 0; index < 4; ++index)
            if (key + 8 * column + 2 * (place % 4) + index % 2 > first + row + 16 * tile + place / 4 + index / 2 * 8)
              scores[tile][column][index] = -INFINITY;
    }
    // Key 0 is in every query's sight, so that from the first tile on the largest score is finite.
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[tile][half];
#pragma unroll
        for (int column = 0; column < keys / 8; ++column)
          most = fmaxf(most, fmaxf(scores[tile][column][2 * half], scores[tile][column][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float const shrink = exp2_approximate((largest[tile][half] - most) * arguments.scale);
        float const offset = most * arguments.scale;
        largest[tile][half] = most;
        float sum = 0;
#pragma unroll
        for (int column = 0; column < keys / 8; ++column)
#pragma unroll
          for (int index = 2 * half; index < 2 * half + 2; ++index) {
            float const weight = exp2_approximate(fmaf(scores[tile][column][index], arguments.scale, -offset));
            scores[tile][column][index] = weight;
            sum += weight;
          }
        total[tile][half] = total[tile][half] * shrink + sum;
#pragma unroll
        for (int column = 0; column < Width / 8; ++column)
#pragma unroll
          for (int index = 2 * half; index < 2 * half + 2; ++index) sums[tile][column][index] *= shrink;
      }
    multiply_weights<Planes>(sums, scores, value_tile(step));
  }

#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile) {
    float factors[2];
    int const begin = first + row + 16 * tile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[tile][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factors[half] = 1.0f / sum;
      int const query = begin + lane / 4 + 8 * half;
      if (arguments.lse != nullptr && lane % 4 == 0 && query < tokens)
        arguments.lse[std::int64_t{head} * tokens + query] =
            (largest[tile][half] * arguments.scale + log2f(sum)) * 0.693147180559945f;  // ln 2
    }
    queries.store(sums[tile], factors, row + 16 * tile, arguments.out + sizes.out(head) + begin * sizes.out_row(),
                  sizes.out_row(), tokens - begin, size);
  }
}

}  // namespace tutti::kernel::cuda::detail
