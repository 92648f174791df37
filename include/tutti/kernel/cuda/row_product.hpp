// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One row times a matrix, with what stands before and behind it in a step of generation, in one kernel: such steps are
/// bound by the weights' memory and by the time between dependent kernels.
///
/// Every block computes the whole left row anew in shared memory (a few KB from the second-level cache) rather than
/// another kernel once. Before it waits for its predecessor it has its first weights under way: they depend on nothing.
/// Where kernels may overlap (sm_90), several of them hold weights in registers while the chain of rows goes on. A warp
/// reads up to 2 KB of a weight row at once; long rows are divided among up to eight warps, whose sums a leader adds in
/// their order.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/activation.hpp>
#include <tutti/kernel/cuda/attention_decode.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/next_token.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

inline constexpr int row_warps = 8, row_block = 32 * row_warps;
inline constexpr int row_held = 4;  ///< accesses of 16 bytes that a lane has under way

/// Where four elements from 4 `quad` on stand in shared memory, for weights whose accesses have V elements: the lanes
/// of a warp, each reading the V elements beside its weights four at a time, read neighbouring 16 bytes.
template <int V>
__device__ __forceinline__ int quad_place(int quad) {
  constexpr int quads = V / 4;
  int const piece = quad / quads;
  return piece / 32 * (32 * V) + quad % quads * 128 + piece % 32 * 4;
}

}  // namespace detail

// ---- What the left row is. `prepare` runs before the wait and reads nothing that a kernel writes. ----

/// x (K) as it is.
struct PlainRow {
  float const* x = nullptr;

  __device__ void prepare(std::int64_t) {}
  template <int V>
  __device__ void put(float* shared, std::int64_t k) const {
    for (int quad = static_cast<int>(threadIdx.x); quad < k / 4; quad += detail::row_block) {
      float values[4];
      detail::load(x + 4 * quad, values);
      detail::store(shared + detail::quad_place<V>(quad), values);
    }
  }
};

/// x (K), float or bfloat16, after layer normalisation with gamma (K) and beta (K), as kernel::LayerNorm.
template <class X>
struct NormedRow {
  X const* x = nullptr;
  float const* gamma = nullptr;
  float const* beta = nullptr;
  float eps = 0;
  float first_gamma[4] = {}, first_beta[4] = {};  ///< of the kernel

  __device__ void prepare(std::int64_t k) {
    int const quad = static_cast<int>(threadIdx.x);
    if (quad >= k / 4) return;
    detail::load(gamma + 4 * quad, first_gamma);
    detail::load(beta + 4 * quad, first_beta);
  }
  template <int V>
  __device__ void put(float* shared, std::int64_t k) const {
    __shared__ float room[2][1][detail::most_warps];
    int const thread = static_cast<int>(threadIdx.x), quads = static_cast<int>(k / 4);
    float const inverse = 1.0f / static_cast<float>(k);
    float sum[1] = {0}, squares[1] = {0};
    for (int quad = thread; quad < quads; quad += detail::row_block) {
      float values[4];
      detail::load(x + 4 * quad, values);
#pragma unroll
      for (float const value : values) sum[0] += value;
      detail::store(shared + detail::quad_place<V>(quad), values);
    }
    detail::row_sums(sum, detail::row_block, room[0]);
    float const mean = sum[0] * inverse;
    for (int quad = thread; quad < quads; quad += detail::row_block) {
      float values[4];
      detail::load(shared + detail::quad_place<V>(quad), values);
#pragma unroll
      for (float const value : values) squares[0] += (value - mean) * (value - mean);
    }
    detail::row_sums(squares, detail::row_block, room[1]);
    float const rstd = 1.0f / sqrtf(squares[0] * inverse + eps);
    for (int quad = thread; quad < quads; quad += detail::row_block) {
      float values[4], scales[4], shifts[4];
      detail::load(shared + detail::quad_place<V>(quad), values);
#pragma unroll
      for (int j = 0; j < 4; ++j) scales[j] = first_gamma[j], shifts[j] = first_beta[j];
      if (quad != thread) {
        detail::load(gamma + 4 * quad, scales);
        detail::load(beta + 4 * quad, shifts);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = (values[j] - mean) * rstd * scales[j] + shifts[j];
      detail::store(shared + detail::quad_place<V>(quad), values);
    }
  }
};

/// The heads' results (heads * head_size), joined from what attention_decode_parts left of them. Of `length` positions
/// in the cache `part` are in each; those behind it are not read.
struct JoinedRow {
  float const* parts = nullptr;
  std::int32_t const* length = nullptr;
  int head_size = 0, count = 0, part = 0;

  __device__ void prepare(std::int64_t) {}
  template <int V>
  __device__ void put(float* shared, std::int64_t k) const {
    int const begun = (*length + part - 1) / part, live = begun < count ? begun : count, stride = head_size + 2;
    for (int quad = static_cast<int>(threadIdx.x); quad < k / 4; quad += detail::row_block) {
      int const head = 4 * quad / head_size, at = 4 * quad % head_size;
      float const* const from = parts + std::int64_t{head} * count * stride;
      float top = -INFINITY, weights = 0, sums[4] = {};
#pragma unroll 4
      for (int index = 0; index < live; ++index) {
        float const* const one = from + index * stride;
        float const largest = one[head_size], weight = one[head_size + 1];
        float2 const low = *reinterpret_cast<float2 const*>(one + at);
        float2 const high = *reinterpret_cast<float2 const*>(one + at + 2);
        float const next = fmaxf(top, largest);
        float const shrink = exp2_approximate(top - next), factor = exp2_approximate(largest - next);
        top = next;
        weights = fmaf(weights, shrink, weight * factor);
        sums[0] = fmaf(sums[0], shrink, low.x * factor);
        sums[1] = fmaf(sums[1], shrink, low.y * factor);
        sums[2] = fmaf(sums[2], shrink, high.x * factor);
        sums[3] = fmaf(sums[3], shrink, high.y * factor);
      }
#pragma unroll
      for (float& sum : sums) sum /= weights;
      detail::store(shared + detail::quad_place<V>(quad), sums);
    }
  }
};

// ---- What becomes of the products. `operator()` is called by one thread for each column, `end` by all. ----

/// y (N) = product + bias (N), then GELU, + residual (N), which may be y; null: without.
struct ToRow {
  float* y = nullptr;
  float const* bias = nullptr;
  float const* residual = nullptr;
  bool gelu = false;

  __device__ void begin() {}
  __device__ void operator()(std::int64_t column, float value) {
    if (bias != nullptr) value += bias[column];
    if (gelu) value = kernel::gelu<float>(value);
    if (residual != nullptr) value += residual[column];
    y[column] = value;
  }
  __device__ void end() {}
};

/// N = 3 C columns of Q, K, V, + bias (3 C): q (C), and rows length - 1 of keys and values (heads, capacity,
/// head_size).
template <class T>
struct ToCache {
  float const* bias = nullptr;
  T* q = nullptr;
  T* keys = nullptr;
  T* values = nullptr;
  std::int32_t const* length = nullptr;
  int channels = 0, head_size = 0, capacity = 0;
  int position = 0;  ///< of the kernel

  __device__ void begin() { position = *length - 1; }
  __device__ void operator()(std::int64_t column, float value) {
    value += bias[column];
    int const which = static_cast<int>(column) / channels, at = static_cast<int>(column) % channels;
    if (which == 0) {
      q[at] = T(value);
    } else {
      std::int64_t const row = std::int64_t{at / head_size} * capacity + position;
      (which == 1 ? keys : values)[row * head_size + at % head_size] = T(value);
    }
  }
  __device__ void end() {}
};

/// logits (N), and the likeliest of each block's columns (`row_product_blocks`).
struct ToLogits {
  float* logits = nullptr;
  Likeliest* likeliest = nullptr;
  Likeliest best{};  ///< of the kernel

  __device__ void begin() {}
  __device__ void operator()(std::int64_t column, float value) {
    logits[column] = value;
    if (fabsf(value) < INFINITY) best = likelier(best, {value, static_cast<std::int32_t>(column)});
  }
  __device__ void end() {
    __shared__ Likeliest of_warp[detail::row_warps];
    int const thread = static_cast<int>(threadIdx.x);
    if (thread % 32 == 0) of_warp[thread / 32] = best;
    __syncthreads();
    if (thread != 0) return;
    for (Likeliest const& other : of_warp) best = likelier(best, other);
    likeliest[blockIdx.x] = best;
  }
};

namespace detail {

/// How columns and the pieces of their weights are divided; by the shape alone.
struct RowProductPlan {
  int split = 1;  ///< warps of a column
  int blocks = 0;
};
template <class T>
RowProductPlan plan_row_product(std::int64_t n, std::int64_t k) {
  RowProductPlan plan;
  std::int64_t const accesses = (k / vector_size<T> + 31) / 32;  // of a warp
  auto const blocks = [&] { return (n * plan.split + row_warps - 1) / row_warps; };
  // So that all of a row's weights are under way at once, and that every processor of an H200 has a block.
  while (plan.split < row_warps &&
         (accesses > row_held * plan.split || (accesses > plan.split && blocks() < 132)))
    plan.split *= 2;
  plan.blocks = static_cast<int>(std::min<std::int64_t>(blocks(), 4 * 132));  // what it holds at once
  return plan;
}

template <class T, class Row, class Result>
struct RowProductArguments {
  std::int64_t n = 0, k = 0;
  T const* weights = nullptr;
  int split = 1;
  Row row;
  Result result;
};

template <class T, class Row, class Result>
__global__ void __launch_bounds__(row_block, 4)
    row_product(__grid_constant__ RowProductArguments<T, Row, Result> const args) {
  constexpr int V = vector_size<T>;
  __shared__ float parts[2][row_warps];
  float* const left = tutti::cuda::dynamic_shared<float>();
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const split = args.split, columns = row_warps / split;
  int const pieces = static_cast<int>(args.k / V), first = lane + 32 * (warp % split), step = 32 * split;
  std::int64_t column = std::int64_t{blockIdx.x} * columns + warp / split;
  std::int64_t const stride = std::int64_t{gridDim.x} * columns;

  Bits<V, T> held[row_held];
  auto const fetch = [&] {
    T const* const weights = args.weights + column * args.k;
    if (column < args.n)
#pragma unroll
      for (int index = 0; index < row_held; ++index)
        if (int const piece = first + index * step; piece < pieces)
          held[index] = Bits<V, T>::of(weights + std::int64_t{piece} * V);
  };
  float sum = 0;
  auto const add = [&](Bits<V, T> const& bits, int piece) {
    float right[V];
    bits.unpack(right);
#pragma unroll
    for (int quad = 0; quad < V / 4; ++quad) {
      float four[4];
      load(left + piece / 32 * (32 * V) + quad * 128 + piece % 32 * 4, four);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum = fmaf(four[j], right[4 * quad + j], sum);
    }
  };

  let_next_kernel_start();
  Row row = args.row;
  Result result = args.result;
  fetch();
  row.prepare(args.k);
  wait_for_previous_kernel();
  result.begin();
  row.template put<V>(left, args.k);
  __syncthreads();
  int turn = 0;
  // All warps of a block go the same number of rounds: they meet at a barrier where they share columns.
  for (std::int64_t base = std::int64_t{blockIdx.x} * columns; base < args.n; base += stride) {
    sum = 0;
    std::int64_t const current = column;
    if (current < args.n) {
      T const* const weights = args.weights + current * args.k;
#pragma unroll
      for (int index = 0; index < row_held; ++index)
        if (int const piece = first + index * step; piece < pieces) add(held[index], piece);
      for (int piece = first + row_held * step; piece < pieces; piece += step)
        add(Bits<V, T>::of(weights + std::int64_t{piece} * V), piece);
    }
    column += stride;
    fetch();  // under way while this column's sums are added
    sum = warp_sum(sum);
    if (split > 1) {
      if (lane == 0) parts[turn][warp] = sum;
      __syncthreads();
      if (warp % split == 0)
        for (int other = 1; other < split; ++other) sum += parts[turn][warp + other];
      turn ^= 1;  // what is read now is written after the next barrier at the earliest
    }
    if (lane == 0 && warp % split == 0 && current < args.n) result(current, sum);
  }
  result.end();
}

}  // namespace detail

/// Blocks of a product of this shape, at most 528.
template <class T>
int row_product_blocks(std::int64_t n, std::int64_t k) {
  return detail::plan_row_product<T>(n, k).blocks;
}

/// Shapes     weights (N, K) of float or bfloat16, whose rows are those of the right operand
/// Computes   result(j) = sum over i of row[i] * weights[j, i]; rows and results as above
/// Requires   K is a positive multiple of 8, below 2^14 on all devices; pointers aligned to 16 bytes. What `prepare`
///            and the first products read, weights and parameters of rows, is written by no kernel of this sequence.
/// Overlap    with `overlaps` it may start while the kernel before it runs, and waits for its end where it needs it; on
///            devices from sm_90 on. All kernels here let their successors do so.
/// Numerics   fp32 sums, in an order that depends on the shape and T alone.
template <class T, class Row, class Result>
void row_product(Context& context, std::int64_t n, std::int64_t k, T const* weights, Row const& row,
                 Result const& result, bool overlaps = false) {
  if (n <= 0) return;
  detail::RowProductPlan const plan = detail::plan_row_product<T>(n, k);
  constexpr std::int64_t line = 32 * detail::vector_size<T>;
  tutti::cuda::launch(
      context.stream(),
      {.grid = dim3(static_cast<unsigned>(plan.blocks)),
       .block = dim3(detail::row_block),
       .shared_bytes = static_cast<std::size_t>((k + line - 1) / line * line) * sizeof(float),
       .overlaps = overlaps},
      detail::row_product<T, Row, Result>, {n, k, weights, plan.split, row, result});
}

}  // namespace tutti::kernel::cuda
