// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The gradient of causal attention on mma.sync in one walk with five products, the same bits every time.
///
/// Two kernels: the row sums of dout * out; then blocks that own keys, walk over the queries that see them, head after
/// head of those that share them, and make each score and each dout v^T once:
///
///   p^T = exp(k q^T - lse)            dv += p^T dout
///   ds^T = p^T * (v dout^T - dots)    dk += ds^T q      dq = the blocks' sum of ds k
///
/// dk and dv stay in registers. The owned keys are left factors, so that p^T and ds^T pass from one product to the next
/// there; a copy of ds^T goes through shared memory for ds k, which sums over the keys of all warps: each makes 16
/// queries x a part of the width of it.
///
/// Order of dq: a tile of queries gets the shares of the blocks that see it one after another, the block of its own
/// keys first, that of the first keys last; a counter for each tile says whose turn it is. The sum so far lies in
/// working memory in fp32, in the order of the fragments, and in L2 while it is in use. The last block writes dq
/// itself, so nothing is cleared before or converted after. All blocks walk towards later queries: a block comes to a
/// tile one step after the one whose share goes before, so that with equal speed none waits. Turns are safe in any
/// order of blocks: they draw their keys by number, and wait for lower numbers alone (`wait_for_turn`).
///
/// Shapes: dout and out (B, T, heads, D), qkv and dqkv (B, T, heads + 2 kv_heads, D), lse and row_dots (B, heads, T);
/// lse in natural units. Working memory: that of row_dots, dq_sums and turns. A block of four warps with up to 255
/// registers a thread: two on each SM of sm_90.
/// Source: Dao, FlashAttention-2 (2023), algorithm 2, its atomic sums of dq replaced by turns; docs/adr/0023.

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
  float4* dq_sums = nullptr;  ///< (B, heads, tiles of queries, warps, fragments, 32): of dq so far
  unsigned* turns = nullptr;  ///< (B, heads, tiles of queries): shares in dq_sums; then one, how many blocks have begun
  std::int64_t turn_count = 0;  ///< with that one
  T* dqkv = nullptr;
};

inline constexpr int row_dot_threads = 256;
inline constexpr float log2_e = 1.44269504088896f;

/// Lanes that share a (token, head) in attention_row_dots, an access of 16 bytes of each vector a lane: a power of two.
/// Two at least, so that there are more threads than turns to clear.
template <class T>
constexpr int row_dot_lanes(std::int64_t head_size) {
  int lanes = 2;
  while (lanes < 32 && lanes * vector_size<T> < head_size) lanes *= 2;
  return lanes;
}

/// Clears the turns of the kernel that follows as well.
template <class T>
__global__ void __launch_bounds__(row_dot_threads)
    attention_row_dots(__grid_constant__ AttentionGradientArguments<T> const arguments) {
  begin_kernel();
  constexpr int width = vector_size<T>;
  AttentionSizes const& sizes = arguments.sizes;
  std::int64_t const index_in_grid =
      std::int64_t{blockIdx.x} * row_dot_threads + static_cast<std::int64_t>(threadIdx.x);
  if (index_in_grid < arguments.turn_count) arguments.turns[index_in_grid] = 0;
  int const lanes = row_dot_lanes<T>(sizes.head_size), lane = static_cast<int>(threadIdx.x) % lanes;
  std::int64_t const item = index_in_grid / lanes;
  bool const live = item < arguments.rows * sizes.heads;  // all lanes of a warp take part in the sum
  float sum = 0;
  for (int index = width * lane; live && index < sizes.head_size; index += width * lanes) {
    float first[width], second[width];
    load(arguments.dout + item * sizes.head_size + index, first);
    load(arguments.out + item * sizes.head_size + index, second);
#pragma unroll
    for (int part = 0; part < width; ++part) sum = fmaf(first[part], second[part], sum);
  }
  for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (!live || lane != 0) return;
  std::int64_t const row = item / sizes.heads, head = item - row * sizes.heads, sequence = row / sizes.tokens;
  arguments.row_dots[(sequence * sizes.heads + head) * sizes.tokens + (row - sequence * sizes.tokens)] = sum;
}

/// How blocks of the walk cut their work.
template <class T, int Width>
struct AttentionGradientShape {
  static constexpr int warps = 4;
  static constexpr int row_tiles = sizeof(T) == 2 && Width <= 64 ? 2 : 1;
  static constexpr int owned = warps * 16 * row_tiles;
  static constexpr int walked = sizeof(T) == 4 && Width > 64 ? 16 : 32;
  static constexpr int stage = 2 * Tile<T, Width>::bytes(walked) + 2 * walked * static_cast<int>(sizeof(float));
  static constexpr int shared = 2 * Tile<T, Width>::bytes(owned) + 2 * stage + Tile<T, walked>::bytes(owned);
  static constexpr int columns = Width / (warps / (walked / 16));  ///< of dq that a warp makes of 16 queries
  static constexpr int fragments = columns / 8;                    ///< float4 of dq that a thread has of a tile

  static std::int64_t tiles(std::int64_t tokens) { return (tokens + walked - 1) / walked; }
};

/// dk and dv of `owned` keys, and their share of dq.
template <class T, int Planes, int Width>
__global__ void __launch_bounds__(128, 2)
    attention_gradient_walk(__grid_constant__ AttentionGradientArguments<T> const arguments) {
  begin_kernel();
  using Shape = AttentionGradientShape<T, Width>;
  constexpr int row_tiles = Shape::row_tiles, owned = Shape::owned, walked = Shape::walked, threads = 32 * Shape::warps;
  constexpr int owned_bytes = Tile<T, Width>::bytes(owned), walked_bytes = Tile<T, Width>::bytes(walked);
  AttentionSizes const& sizes = arguments.sizes;
  int const size = sizes.head_size, group = sizes.heads / sizes.kv_heads, tokens = sizes.tokens;
  int const thread = static_cast<int>(threadIdx.x);
  auto const row_of = [](int of_thread) { return of_thread / 32 * 16 * row_tiles; };

  // The last keys of a head come first: their share of dq goes before that of all others.
  __shared__ unsigned drawn;
  if (thread == 0) drawn = atomicAdd(arguments.turns + arguments.turn_count - 1, 1u);
  __syncthreads();
  int const kv_head = static_cast<int>(drawn / gridDim.y),
            first = static_cast<int>(gridDim.y - 1 - drawn % gridDim.y) * owned;

  unsigned char* const memory = tutti::cuda::dynamic_shared<unsigned char>();
  Tile<T, Width> const keys(memory), values(memory + owned_bytes);
  auto const stage = [&](int index) { return memory + 2 * owned_bytes + index * Shape::stage; };
  auto const statistics = [&](int index) { return reinterpret_cast<float*>(stage(index) + 2 * walked_bytes); };
  Tile<T, walked> const shared_slopes(stage(2));

  // The walk: for each head that shares these keys, the tiles of queries from the first that sees one of them.
  int const end = (kv_head + 1) * group;
  auto const advance = [&](int& head, int& query) {
    query += walked;
    if (query >= tokens) query = first, ++head;
  };
  auto const fetch = [&](int head, int query, int to) {
    Tile<T, Width>(stage(to)).template fetch<walked, threads>(arguments.qkv + sizes.query(head) + query * sizes.row(),
                                                              sizes.row(), tokens - query, size);
    Tile<T, Width>(stage(to) + walked_bytes)
        .template fetch<walked, threads>(arguments.dout + sizes.out(head) + query * sizes.out_row(), sizes.out_row(),
                                         tokens - query, size);
  };
  // Of thread `index` and, above `walked`, thread `index - walked`: log sums and dots of a step's queries.
  auto const statistic = [&](int head, int query, int index) {
    query += index % walked;
    if (index >= 2 * walked || query >= tokens) return 0.0f;
    return index < walked ? arguments.lse[std::int64_t{head} * tokens + query] * log2_e
                          : arguments.row_dots[std::int64_t{head} * tokens + query];
  };
  // Of all tiles of queries, and how many blocks give it their share before this one.
  auto const tile_of = [&](int head, int query) {
    return std::int64_t{head} * ((tokens + walked - 1) / walked) + query / walked;
  };
  auto const before_us = [&](int query) { return static_cast<unsigned>((query - first) / owned); };

  T const* const k = arguments.qkv + sizes.key(kv_head) + first * sizes.row();
  keys.template fetch<owned, threads>(k, sizes.row(), tokens - first, size);
  values.template fetch<owned, threads>(k + std::int64_t{sizes.kv_heads} * size, sizes.row(), tokens - first, size);
  int head = kv_head * group, query = first;
  fetch(head, query, 0);
  copy_async_commit();
  if (thread < 2 * walked) statistics(0)[thread] = statistic(head, query, thread);

  float dk[row_tiles][Width / 8][4], dv[row_tiles][Width / 8][4];
  clear(dk);
  clear(dv);
  float const scale = arguments.scale * log2_e, ones[2] = {1, 1};
  for (int step = 0;; ++step) {
    copy_async_wait<0>();
    __syncthreads();  // this stage is there, the other one and the slopes have been used, and the share of dq is there
    if (step > 0) {
      if (first > 0 && thread == 0) hand_on(arguments.turns + tile_of(head, query), before_us(query) + 1);
      advance(head, query);
      if (head == end) break;
    }
    int const current = step % 2;
    int next_head = head, next_query = query;
    advance(next_head, next_query);
    if (next_head < end) fetch(next_head, next_query, 1 - current);
    copy_async_commit();

    int const row = row_of(computed_anew(thread));
    if (query + walked - 1 >= first + row) {  // else none of them sees this warp's keys
      Tile<T, Width> const q(stage(current)), dout(stage(current) + walked_bytes);
      float const* const log_sums = statistics(current);
      float weights[row_tiles][walked / 8][4], slopes[row_tiles][walked / 8][4];
      clear(weights);
      multiply_rows<Planes>(weights, keys, row, q);
      bool const diagonal = query < first + row + 16 * row_tiles - 1;
      int const place = computed_anew(thread) % 32;
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
      for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
        for (int column = 0; column < walked / 8; ++column)
#pragma unroll
          for (int index = 0; index < 4; ++index)
            slopes[tile][column][index] =
                weights[tile][column][index] *
                (slopes[tile][column][index] - log_sums[walked + 8 * column + 2 * (place % 4) + index % 2]);
        shared_slopes.put(slopes[tile], ones, row + 16 * tile, place);
      }
      multiply_weights<Planes>(dk, slopes, q);
    }

    // dq: of 16 queries a part of the width. Keys behind the queries, whose warps wrote no slopes, are left out.
    int const me = computed_anew(thread), warp = me / 32, lane = me % 32;
    next_head = head, next_query = query;
    advance(next_head, next_query);
    float const next = next_head < end ? statistic(next_head, next_query, me) : 0;
    std::int64_t const tile = tile_of(head, query);
    unsigned const before = before_us(query);
    if (me == 0 && before > 0) wait_for_turn(arguments.turns + tile, before);
    __syncthreads();                                                  // the slopes are there, and the sum so far
    constexpr int fragments = Shape::fragments, parts = walked / 16;  // of the queries
    int const in_sight = query - first + walked;
    int const line = query + warp % parts * 16 + lane / 4, from = warp / parts * Shape::columns;
    float4* const sums = arguments.dq_sums + (tile * Shape::warps + warp) * fragments * 32 + lane;
    float4 so_far[fragments];
#pragma unroll
    for (int part = 0; part < fragments; ++part) so_far[part] = before > 0 ? __ldcg(sums + 32 * part) : float4{};
    float dq[1][fragments][4];
    clear(dq);
    multiply_columns<Planes>(dq[0], shared_slopes, warp % parts, keys, from,
                             (in_sight < owned ? in_sight : owned) / 16);
#pragma unroll
    for (int part = 0; part < fragments; ++part) {
      float4 const sum{so_far[part].x + dq[0][part][0], so_far[part].y + dq[0][part][1],
                       so_far[part].z + dq[0][part][2], so_far[part].w + dq[0][part][3]};
      if (first > 0) {
        __stcg(sums + 32 * part, sum);
        continue;
      }
      if (from + 8 * part >= size) continue;
      T* const to = arguments.dqkv + sizes.query(head) + line * sizes.row() + from + 8 * part + 2 * (lane % 4);
      if (line < tokens) store_pair(to, sum.x * arguments.scale, sum.y * arguments.scale);
      if (line + 8 < tokens) store_pair(to + 8 * sizes.row(), sum.z * arguments.scale, sum.w * arguments.scale);
    }
    if (me < 2 * walked) statistics(1 - step % 2)[me] = next;
  }

  int const row = row_of(thread);
  T* const to = arguments.dqkv + sizes.key(kv_head);
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile) {
    int const at = first + row + 16 * tile;
    float const scales[2] = {arguments.scale, arguments.scale};
    keys.store(dk[tile], scales, row + 16 * tile, to + at * sizes.row(), sizes.row(), tokens - at, size);
    values.store(dv[tile], ones, row + 16 * tile, to + std::int64_t{sizes.kv_heads} * size + at * sizes.row(),
                 sizes.row(), tokens - at, size);
  }
}

}  // namespace tutti::kernel::cuda::detail
