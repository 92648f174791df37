// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The gradient of causal attention on mma.sync, without atomics: every element of dqkv has one block that sums it.
///
/// Three kernels: the row sums of dout * out; dk and dv by blocks that own keys and walk over the queries that see
/// them, head after head of those that share them; dq by blocks that own queries and walk over the keys they see.
/// Scores and dout v^T are made twice, 7 products for 5: what that costs, atomics or a T x T buffer would cost too, and
/// neither would be the same bits every time. In both walks the owned rows are left factors, so that weights pass from
/// one product to the next in registers, and shared memory holds only the owned rows and two stages of the rows walked
/// over. A block of four warps with up to 255 registers a thread: two on each SM.

#include <tutti/kernel/cuda/attention_tile.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda::detail {

template <class T>
struct AttentionGradientArguments {
  AttentionSizes sizes;
  std::int64_t rows = 0;  ///< batch * tokens
  float scale = 0;
  T const* dout = nullptr;
  T const* qkv = nullptr;
  T const* out = nullptr;
  float const* lse = nullptr;
  float* row_dots = nullptr;  ///< (B, heads, T): rowsum(dout * out)
  T* dqkv = nullptr;
};

inline constexpr int row_dot_threads = 256;
inline constexpr float log2_e = 1.44269504088896f;

/// A warp per (token, head).
template <class T>
__global__ void __launch_bounds__(row_dot_threads)
    attention_row_dots(__grid_constant__ AttentionGradientArguments<T> const arguments) {
  begin_kernel();
  AttentionSizes const& sizes = arguments.sizes;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t const item =
      (std::int64_t{blockIdx.x} * row_dot_threads + static_cast<std::int64_t>(threadIdx.x)) / 32;
  if (item >= arguments.rows * sizes.heads) return;
  std::int64_t const row = item / sizes.heads, head = item % sizes.heads;
  T const* const a = arguments.dout + item * sizes.head_size;
  T const* const b = arguments.out + item * sizes.head_size;
  float sum = 0;
  for (int index = 4 * lane; index < sizes.head_size; index += 128) {
    float first[4], second[4];
    load(a + index, first);
    load(b + index, second);
#pragma unroll
    for (int part = 0; part < 4; ++part) sum = fmaf(first[part], second[part], sum);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0)
    arguments.row_dots[(row / sizes.tokens * sizes.heads + head) * sizes.tokens + row % sizes.tokens] = sum;
}

/// How blocks of both walks cut their work.
template <class T, int Width>
struct AttentionGradientShape {
  static constexpr int warps = 4;
  static constexpr int row_tiles = sizeof(T) == 2 && Width <= 64 ? 2 : 1;
  static constexpr int owned = warps * 16 * row_tiles;
  static constexpr int walked = 32;
  static constexpr int stage = 2 * Tile<T, Width>::bytes(walked) + 2 * walked * static_cast<int>(sizeof(float));
  static constexpr int shared = 2 * Tile<T, Width>::bytes(owned) + 2 * stage;
};

/// dk and dv of `owned` keys.
template <class T, int Planes, int Width>
__global__ void __launch_bounds__(128, 2)
    attention_gradient_of_keys(__grid_constant__ AttentionGradientArguments<T> const arguments) {
  begin_kernel();
  using Shape = AttentionGradientShape<T, Width>;
  constexpr int row_tiles = Shape::row_tiles, owned = Shape::owned, walked = Shape::walked, threads = 32 * Shape::warps;
  constexpr int owned_bytes = Tile<T, Width>::bytes(owned), walked_bytes = Tile<T, Width>::bytes(walked);
  AttentionSizes const& sizes = arguments.sizes;
  int const size = sizes.head_size, group = sizes.heads / sizes.kv_heads;
  int const tokens = sizes.tokens, kv_head = static_cast<int>(blockIdx.x), first = static_cast<int>(blockIdx.y) * owned;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32, row = thread / 32 * 16 * row_tiles;

  unsigned char* const memory = tutti::cuda::dynamic_shared<unsigned char>();
  Tile<T, Width> const keys(memory), values(memory + owned_bytes);
  auto const stage = [&](int index) { return memory + 2 * owned_bytes + index * Shape::stage; };
  auto const statistics = [&](int index) { return reinterpret_cast<float*>(stage(index) + 2 * walked_bytes); };

  // The walk: for each head that shares these keys, the tiles of queries from the first that sees one of them.
  int const begin = first / walked * walked, tiles = (tokens - begin + walked - 1) / walked;
  int const steps = tiles * group;
  auto const fetch = [&](int step) {
    int const head = kv_head * group + step / tiles, query = begin + step % tiles * walked;
    unsigned char* const at = stage(step % 2);
    Tile<T, Width>(at).template fetch<walked, threads>(arguments.qkv + sizes.query(head) + query * sizes.row(),
                                                       sizes.row(), tokens - query, size);
    Tile<T, Width>(at + walked_bytes)
        .template fetch<walked, threads>(arguments.dout + sizes.out(head) + query * sizes.out_row(), sizes.out_row(),
                                         tokens - query, size);
  };
  // Of thread `index` and, above `walked`, thread `index - walked`: log sums and dots of the step's queries.
  auto const statistic = [&](int step) {
    int const head = kv_head * group + step / tiles, query = begin + step % tiles * walked + thread % walked;
    if (thread >= 2 * walked || query >= tokens) return 0.0f;
    return thread < walked ? arguments.lse[std::int64_t{head} * tokens + query] * log2_e
                           : arguments.row_dots[std::int64_t{head} * tokens + query];
  };

  T const* const k = arguments.qkv + sizes.key(kv_head) + first * sizes.row();
  keys.template fetch<owned, threads>(k, sizes.row(), tokens - first, size);
  values.template fetch<owned, threads>(k + std::int64_t{sizes.kv_heads} * size, sizes.row(), tokens - first, size);
  fetch(0);
  copy_async_commit();
  if (thread < 2 * walked) statistics(0)[thread] = statistic(0);

  float dk[row_tiles][Width / 8][4], dv[row_tiles][Width / 8][4];
  clear(dk);
  clear(dv);
  float const scale = arguments.scale * log2_e;
  for (int step = 0; step < steps; ++step) {
    int const current = step % 2;
    copy_async_wait<0>();
    __syncthreads();  // this stage is there, and the other one has been used
    float next = 0;
    if (step + 1 < steps) {
      fetch(step + 1);
      next = statistic(step + 1);
    }
    copy_async_commit();

    int const query = begin + step % tiles * walked;
    if (query + walked - 1 >= first + row) {  // else none of them sees this warp's keys
      Tile<T, Width> const q(stage(current)), dout(stage(current) + walked_bytes);
      float const* const log_sums = statistics(current);
      float weights[row_tiles][walked / 8][4], slopes[row_tiles][walked / 8][4];
      clear(weights);
      multiply_rows<Planes>(weights, keys, row, q);
      bool const diagonal = query < first + row + 16 * row_tiles - 1;
      int const place = computed_anew(lane);
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
        for (int column = 0; column < walked / 8; ++column)
#pragma unroll
          for (int index = 0; index < 4; ++index) {
            int const at = 8 * column + 2 * (place % 4) + index % 2;
            float& weight = weights[tile][column][index];
            weight = exp2_approximate(fmaf(weight, scale, -log_sums[at]));
            if (diagonal && query + at < first + row + 16 * tile + place / 4 + index / 2 * 8) weight = 0;
          }
      multiply_weights<Planes>(dv, weights, dout);
      clear(slopes);
      multiply_rows<Planes>(slopes, values, row, dout);
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
        for (int column = 0; column < walked / 8; ++column)
#pragma unroll
          for (int index = 0; index < 4; ++index)
            slopes[tile][column][index] =
                weights[tile][column][index] *
                (slopes[tile][column][index] - log_sums[walked + 8 * column + 2 * (lane % 4) + index % 2]);
      multiply_weights<Planes>(dk, slopes, q);
    }
    if (thread < 2 * walked) statistics(1 - current)[thread] = next;
  }

  T* const to = arguments.dqkv + sizes.key(kv_head);
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile) {
    int const at = first + row + 16 * tile;
    float const scales[2] = {arguments.scale, arguments.scale}, ones[2] = {1, 1};
    keys.store(dk[tile], scales, row + 16 * tile, to + at * sizes.row(), sizes.row(), tokens - at, size);
    values.store(dv[tile], ones, row + 16 * tile, to + std::int64_t{sizes.kv_heads} * size + at * sizes.row(),
                 sizes.row(), tokens - at, size);
  }
}

/// dq of `owned` queries; those that see most keys come first.
template <class T, int Planes, int Width>
__global__ void __launch_bounds__(128, 2)
    attention_gradient_of_queries(__grid_constant__ AttentionGradientArguments<T> const arguments) {
  begin_kernel();
  using Shape = AttentionGradientShape<T, Width>;
  constexpr int row_tiles = Shape::row_tiles, owned = Shape::owned, walked = Shape::walked, threads = 32 * Shape::warps;
  constexpr int owned_bytes = Tile<T, Width>::bytes(owned), walked_bytes = Tile<T, Width>::bytes(walked);
  AttentionSizes const& sizes = arguments.sizes;
  int const size = sizes.head_size;
  int const tokens = sizes.tokens, head = static_cast<int>(blockIdx.x);
  int const first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * owned;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32, row = thread / 32 * 16 * row_tiles;

  unsigned char* const memory = tutti::cuda::dynamic_shared<unsigned char>();
  Tile<T, Width> const queries(memory), dout(memory + owned_bytes);
  auto const stage = [&](int index) { return memory + 2 * owned_bytes + index * Shape::stage; };
  T const* const k = arguments.qkv + sizes.key(head / (sizes.heads / sizes.kv_heads));
  auto const fetch = [&](int step) {
    int const key = step * walked;
    unsigned char* const at = stage(step % 2);
    Tile<T, Width>(at).template fetch<walked, threads>(k + key * sizes.row(), sizes.row(), tokens - key, size);
    Tile<T, Width>(at + walked_bytes)
        .template fetch<walked, threads>(k + std::int64_t{sizes.kv_heads} * size + key * sizes.row(), sizes.row(),
                                         tokens - key, size);
  };
  queries.template fetch<owned, threads>(arguments.qkv + sizes.query(head) + first * sizes.row(), sizes.row(),
                                         tokens - first, size);
  dout.template fetch<owned, threads>(arguments.dout + sizes.out(head) + first * sizes.out_row(), sizes.out_row(),
                                      tokens - first, size);
  fetch(0);
  copy_async_commit();

  float log_sums[row_tiles][2], dots[row_tiles][2];
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const query = first + row + 16 * tile + lane / 4 + 8 * half;
      log_sums[tile][half] = query < tokens ? arguments.lse[std::int64_t{head} * tokens + query] * log2_e : 0;
      dots[tile][half] = query < tokens ? arguments.row_dots[std::int64_t{head} * tokens + query] : 0;
    }
  float dq[row_tiles][Width / 8][4];
  clear(dq);
  float const scale = arguments.scale * log2_e;
  int const end = first + owned < tokens ? first + owned : tokens, steps = (end + walked - 1) / walked;
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there, and the other one has been used
    if (step + 1 < steps) fetch(step + 1);
    copy_async_commit();

    int const key = step * walked;
    if (key > first + row + 16 * row_tiles - 1) continue;  // behind this warp's queries
    Tile<T, Width> const keys(stage(step % 2)), values(stage(step % 2) + walked_bytes);
    float weights[row_tiles][walked / 8][4], slopes[row_tiles][walked / 8][4];
    clear(weights);
    multiply_rows<Planes>(weights, queries, row, keys);
    clear(slopes);
    multiply_rows<Planes>(slopes, dout, row, values);
    bool const diagonal = key + walked - 1 > first + row;
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
      for (int column = 0; column < walked / 8; ++column)
#pragma unroll
        for (int index = 0; index < 4; ++index) {
          float const weight =
              exp2_approximate(fmaf(weights[tile][column][index], scale, -log_sums[tile][index / 2]));
          float const slope = weight * (slopes[tile][column][index] - dots[tile][index / 2]);
          bool const hidden = diagonal && key + 8 * column + 2 * (lane % 4) + index % 2 >
                                              first + row + 16 * tile + lane / 4 + index / 2 * 8;
          slopes[tile][column][index] = hidden ? 0 : slope;
        }
    multiply_weights<Planes>(dq, slopes, keys);
  }
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile) {
    int const at = first + row + 16 * tile;
    float const scales[2] = {arguments.scale, arguments.scale};
    queries.store(dq[tile], scales, row + 16 * tile, arguments.dqkv + sizes.query(head) + at * sizes.row(),
                  sizes.row(), tokens - at, size);
  }
}

}  // namespace tutti::kernel::cuda::detail
