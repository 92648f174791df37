// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Attention over a cache of keys and values on a GPU: a kernel that rotates and stores, then a block for each head of
/// each row, whose warps take keys in turn and join their softmaxes in order.

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/block_layout.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/float16.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cached_attention.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

inline constexpr int cached_warps = 4;
inline constexpr int cached_most_size = 512;  ///< elements of a head

/// Element i of a head, rotated.
__device__ inline float rotated(CachedAttention const& op, std::int64_t row, float const* head, int i) {
  int const pairs = static_cast<int>(op.pairs);
  if (i >= 2 * pairs) return head[i];
  bool const half = op.pairing == RotaryPairing::half;
  int const pair = half ? i % pairs : i / 2;
  bool const second = half ? i >= pairs : i % 2 == 1;
  float const a = head[half ? pair : 2 * pair], b = head[half ? pair + pairs : 2 * pair + 1];
  float const cosine = op.cosine[row * pairs + pair], sine = op.sine[row * pairs + pair];
  return second ? a * sine + b * cosine : a * cosine - b * sine;
}
/// Rows that fill up a batch have no slot. A place outside the cache is none either: whoever calls has checked them.
__device__ inline bool has_place(CachedAttention const& op, std::int64_t row) {
  return op.slot[row] >= 0 && op.slot[row] < op.slots && op.position[row] >= 0 && op.position[row] < op.capacity;
}

/// Numbers of a cache, by their place in it. Lanes of a warp that write have places that follow one another.
template <class C>
struct CacheNumbers {
  static constexpr int block = 1;
  C* numbers;
  __device__ float operator[](std::int64_t at) const { return float(numbers[at]); }
  __device__ void write(std::int64_t at, float value) const { numbers[at] = C(value); }
};
/// A warp writes a block: as blocks::quantise does.
template <>
struct CacheNumbers<blocks::Q8_0> {
  static constexpr int block = 32;
  blocks::Q8_0* blocks;
  __device__ float operator[](std::int64_t at) const {
    blocks::Q8_0 const& one = blocks[at / 32];
    return float(one.d) * static_cast<float>(one.q[at % 32]);
  }
  __device__ void write(std::int64_t at, float value) const {
    blocks::Q8_0& one = blocks[at / 32];
    float16 const scale(warp_maximum(fabsf(value)) / 127.0f);
    float const inverse = float(scale) == 0.0f ? 0.0f : 1.0f / float(scale);
    one.q[at % 32] = static_cast<std::int8_t>(rintf(fminf(fmaxf(inverse * value, -127.0f), 127.0f)));
    if (at % 32 == 0) one.d = scale;
  }
};

/// A key's and a value's element a thread.
template <class C>
__global__ void __launch_bounds__(256) store_cached(CachedAttention const op) {
  begin_kernel();
  std::int64_t const each = op.kv_heads * op.head_size, i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  std::int64_t const row = i / each;
  if (row >= op.rows || !has_place(op, row)) return;
  std::int64_t const head = i % each / op.head_size, width = (op.heads + 2 * op.kv_heads) * op.head_size;
  int const at = static_cast<int>(i % op.head_size);
  float const* const key = op.qkv + row * width + (op.heads + head) * op.head_size;
  std::int64_t const place =
      ((op.slot[row] * op.kv_heads + head) * op.capacity + op.position[row]) * op.head_size + at;
  CacheNumbers<C>{static_cast<C*>(op.keys)}.write(place, rotated(op, row, key, at));
  CacheNumbers<C>{static_cast<C*>(op.values)}.write(place, key[op.kv_heads * op.head_size + at]);
}

/// Block (head, row).
template <class C>
__global__ void __launch_bounds__(32 * cached_warps) attend_cached(CachedAttention const op) {
  begin_kernel();
  constexpr int held = cached_most_size / 32;  // elements of a lane
  __shared__ float query[cached_most_size], sums[cached_warps][cached_most_size];
  __shared__ float largest[cached_warps], totals[cached_warps];
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int const size = static_cast<int>(op.head_size);
  std::int64_t const row = blockIdx.y, head = blockIdx.x, width = (op.heads + 2 * op.kv_heads) * op.head_size;
  float* const out = op.out + (row * op.heads + head) * size;
  if (!has_place(op, row)) {
    for (int i = thread; i < size; i += 32 * cached_warps) out[i] = 0;
    return;
  }
  for (int i = thread; i < size; i += 32 * cached_warps)
    query[i] = rotated(op, row, op.qkv + row * width + head * size, i) * op.scale;
  __syncthreads();
  std::int64_t const end = std::int64_t{op.position[row]} + 1;
  std::int64_t const first = op.window > 0 && end > op.window ? end - op.window : 0;
  std::int64_t const from = (op.slot[row] * op.kv_heads + head / (op.heads / op.kv_heads)) * op.capacity * size;
  CacheNumbers<C> const keys{static_cast<C*>(op.keys) + from / CacheNumbers<C>::block};
  CacheNumbers<C> const values{static_cast<C*>(op.values) + from / CacheNumbers<C>::block};
  float most = -INFINITY, total = 0, sum[held] = {};
  for (std::int64_t t = first + warp; t < end; t += cached_warps) {
    float score = 0;
#pragma unroll
    for (int j = 0; j < held; ++j)
      if (int const i = lane + 32 * j; i < size) score = fmaf(query[i], keys[t * size + i], score);
    score = warp_sum(score);
    float const next = fmaxf(most, score), shrink = most == next ? 1.0f : expf(most - next);
    float const weight = expf(score - next);
    most = next;
    total = total * shrink + weight;
#pragma unroll
    for (int j = 0; j < held; ++j)
      if (int const i = lane + 32 * j; i < size) sum[j] = sum[j] * shrink + weight * values[t * size + i];
  }
  if (lane == 0) largest[warp] = most, totals[warp] = total;
#pragma unroll
  for (int j = 0; j < held; ++j)
    if (int const i = lane + 32 * j; i < size) sums[warp][i] = sum[j];
  __syncthreads();
  // The first warp always has a key.
  float top = largest[0];
  for (int other = 1; other < cached_warps; ++other) top = fmaxf(top, largest[other]);
  for (int i = thread; i < size; i += 32 * cached_warps) {
    float weights = 0, result = 0;
    for (int other = 0; other < cached_warps; ++other) {
      float const factor = largest[other] == top ? 1.0f : expf(largest[other] - top);
      weights += totals[other] * factor;
      result += sums[other][i] * factor;
    }
    out[i] = result / weights;
  }
}

}  // namespace detail

/// See kernel::CachedAttention, with heads of up to 512 elements.
/// Requires  slots and positions inside the cache: a row outside stores nothing and has zeros for its result.
/// Numerics  float32, in an order that depends on positions and shapes alone, never on other rows.
/// Errors    invalid_argument (sizes, types)
inline void cached_attention(Context& context, CachedAttention const& op) {
  auto const refuse = [](auto const&... why) {
    throw Error(ErrorKind::invalid_argument, "cached_attention", concat(why...));
  };
  if (op.rows < 0 || op.heads < 1 || op.kv_heads < 1 || op.heads % op.kv_heads != 0 || op.slots < 1 || op.capacity < 1)
    refuse("the heads must share the heads of keys and values evenly, and sizes must be positive");
  if (op.head_size < 1 || op.head_size > detail::cached_most_size || 2 * op.pairs > op.head_size)
    refuse("heads of ", op.head_size, " elements with ", op.pairs, " pairs are not among those of CUDA devices: up to ",
           detail::cached_most_size);
  if (op.rows > 65535) refuse(op.rows, " rows are more than a grid has. Give fewer at once");
  if (op.rows == 0) return;
  auto const run = [&]<class C>(C) {
    std::int64_t const elements = op.rows * op.kv_heads * op.head_size;
    launch_own(context.stream(), {.grid = dim3(static_cast<unsigned>((elements + 255) / 256)), .block = dim3(256)},
               detail::store_cached<C>, op);
    launch_own(context.stream(),
               {.grid = dim3(static_cast<unsigned>(op.heads), static_cast<unsigned>(op.rows)),
                .block = dim3(32 * detail::cached_warps)},
               detail::attend_cached<C>, op);
  };
  switch (op.cache) {
    case BlockType::f32: return run(float{});
    case BlockType::f16: return run(float16{});
    case BlockType::bf16: return run(bfloat16{});
    case BlockType::q8_0:
      if (op.head_size % 32 != 0)
        refuse("heads of ", op.head_size, " elements have no whole blocks of Q8_0. Keep the cache in F16");
      return run(blocks::Q8_0{});
    default: refuse("the cache is ", name(op.cache), ", none of F32, F16, BF16 and Q8_0");
  }
}

}  // namespace tutti::kernel::cuda
