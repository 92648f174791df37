// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One query per head against a cache of keys and values, which memory bounds: the cache is cut into parts, each summed
/// with a softmax of its own by a block, and the parts are joined in their order.
///
/// A warp takes eight keys at a time, four of heads above 128: eight lanes read one key's row, 16 bytes an access, and
/// all accesses of the eight keys and their values are made before the first product. So a warp has 2 KB to 4 KB in
/// flight for heads of 64, and eight warps of a block have 16 KB to 32 KB. Products, softmax and sums are fp32 in
/// registers. How the cache is cut depends on its capacity and the device, not on its length: a captured graph stays
/// valid while the sequence grows.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <cmath>
#include <cstdint>

namespace tutti::kernel::cuda::detail {

inline constexpr int decode_warps = 8;
inline constexpr int decode_most_size = 256;  ///< elements of a head

template <class T>
struct AttentionDecodeArguments {
  std::int64_t length = 0, capacity = 0, q_stride = 0;
  std::int32_t const* length_on_device = nullptr;
  int heads = 0, head_size = 0, part = 0;  ///< keys of a block
  float scale = 0;                         ///< times log2(e)
  T const* q = nullptr;
  T const* keys = nullptr;
  T const* values = nullptr;
  T* out = nullptr;
  float* parts = nullptr;  ///< (B heads, parts, head_size + 2): sums, largest score, sum of weights; null: one part
};

template <class T>
__device__ __forceinline__ std::int64_t decode_length(AttentionDecodeArguments<T> const& arguments) {
  if (arguments.length_on_device == nullptr) return arguments.length;
  std::int64_t const length = *arguments.length_on_device;
  return length < arguments.capacity ? length : arguments.capacity;
}

/// Block (head over the batch, part of the cache). Width is the head size rounded up to 64, 128 or 256.
template <class T, int Width>
__global__ void __launch_bounds__(32 * decode_warps)
    attention_decode_part(__grid_constant__ AttentionDecodeArguments<T> const arguments) {
  constexpr int each = Width / 8, piece_size = vector_size<T>;  // elements of a lane, and of 16 bytes
  begin_kernel();
  __shared__ float sums[decode_warps][Width], largest[decode_warps], totals[decode_warps];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const size = arguments.head_size;
  std::int64_t const head = blockIdx.x, length = decode_length(arguments);
  std::int64_t const begin = std::int64_t{blockIdx.y} * arguments.part;
  std::int64_t const end = begin + arguments.part < length ? begin + arguments.part : length;
  T const* const q = arguments.q + head / arguments.heads * arguments.q_stride + head % arguments.heads * size;
  T const* const keys = arguments.keys + head * arguments.capacity * size;
  T const* const values = arguments.values + head * arguments.capacity * size;

  // Lane 8 i + j holds pieces j, j + 8, ... of 16 bytes, of the query and of key i of four.
  float query[each], sum[each] = {};
#pragma unroll
  for (int piece = 0; piece < each / piece_size; ++piece) {
    int const at = piece_size * (lane % 8 + 8 * piece);
    float values_of[piece_size] = {};
    if (at < size) load(q + at, values_of);
#pragma unroll
    for (int index = 0; index < piece_size; ++index)
      query[piece_size * piece + index] = values_of[index] * arguments.scale;
  }
  constexpr int groups = Width <= 128 ? 2 : 1;  // of four keys
  float most = -INFINITY, total = 0;
  for (std::int64_t first = begin + 4 * groups * warp; first < end; first += 4 * groups * decode_warps) {
    float k[groups][each], v[groups][each];
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      std::int64_t const key = first + 4 * group + lane / 8;
#pragma unroll
      for (int piece = 0; piece < each / piece_size; ++piece) {
        int const at = piece_size * (lane % 8 + 8 * piece);
        float of_key[piece_size] = {}, of_value[piece_size] = {};
        if (key < end && at < size) {
          load(keys + key * size + at, of_key);
          load(values + key * size + at, of_value);
        }
#pragma unroll
        for (int index = 0; index < piece_size; ++index) {
          k[group][piece_size * piece + index] = of_key[index];
          v[group][piece_size * piece + index] = of_value[index];
        }
      }
    }
    float scores[groups], next = most;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      float score = 0;
#pragma unroll
      for (int index = 0; index < each; ++index) score = fmaf(query[index], k[group][index], score);
#pragma unroll
      for (int distance = 4; distance > 0; distance /= 2) score += __shfl_xor_sync(0xffffffffu, score, distance);
      scores[group] = first + 4 * group + lane / 8 < end ? score : -INFINITY;
      next = fmaxf(next, scores[group]);
    }
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 8));  // of all keys, and finite: the first of them is there
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 16));
    float const shrink = exp2_approximate(most - next);
    most = next;
    total *= shrink;
#pragma unroll
    for (int index = 0; index < each; ++index) sum[index] *= shrink;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      float const weight = exp2_approximate(scores[group] - next);
      total += weight;
#pragma unroll
      for (int index = 0; index < each; ++index) sum[index] = fmaf(weight, v[group][index], sum[index]);
    }
  }
  // The keys of the warp's four places, then the warps.
#pragma unroll
  for (int distance = 8; distance <= 16; distance *= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, distance);
#pragma unroll
    for (int index = 0; index < each; ++index) sum[index] += __shfl_xor_sync(0xffffffffu, sum[index], distance);
  }
  if (lane < 8)
#pragma unroll
    for (int index = 0; index < each; ++index)
      sums[warp][piece_size * (lane + 8 * (index / piece_size)) + index % piece_size] = sum[index];
  if (lane == 0) largest[warp] = most, totals[warp] = total;
  __syncthreads();
  float top = -INFINITY;
#pragma unroll
  for (int other = 0; other < decode_warps; ++other) top = fmaxf(top, largest[other]);
  float factors[decode_warps], weights = 0;
#pragma unroll
  for (int other = 0; other < decode_warps; ++other) {
    factors[other] = top == -INFINITY ? 0 : exp2_approximate(largest[other] - top);
    weights += totals[other] * factors[other];
  }
  float* const part = arguments.parts == nullptr
                          ? nullptr
                          : arguments.parts + (head * gridDim.y + blockIdx.y) * (size + 2);
  for (int index = static_cast<int>(threadIdx.x); index < size; index += 32 * decode_warps) {
    float value = 0;
#pragma unroll
    for (int other = 0; other < decode_warps; ++other) value += sums[other][index] * factors[other];
    if (part == nullptr) arguments.out[head * size + index] = T(value / weights);
    else part[index] = value;
  }
  if (part != nullptr && threadIdx.x == 0) part[size] = top, part[size + 1] = weights;
}

template <class T>
struct AttentionJoinArguments {
  int head_size = 0, parts = 0;
  float const* from = nullptr;
  T* out = nullptr;
};

/// A block per head joins its parts in their order; a part without keys weighs nothing.
template <class T>
__global__ void __launch_bounds__(128)
    attention_decode_join(__grid_constant__ AttentionJoinArguments<T> const arguments) {
  begin_kernel();
  int const size = arguments.head_size;
  float const* const from = arguments.from + std::int64_t{blockIdx.x} * arguments.parts * (size + 2);
  float top = -INFINITY;
  for (int part = 0; part < arguments.parts; ++part) top = fmaxf(top, from[part * (size + 2) + size]);
  for (int index = static_cast<int>(threadIdx.x); index < size; index += 128) {
    float sum = 0, weights = 0;
    for (int part = 0; part < arguments.parts; ++part) {
      float const* const at = from + part * (size + 2);
      float const factor = exp2_approximate(at[size] - top);
      sum = fmaf(at[index], factor, sum);
      weights = fmaf(at[size + 1], factor, weights);
    }
    arguments.out[std::int64_t{blockIdx.x} * size + index] = T(sum / weights);
  }
}

}  // namespace tutti::kernel::cuda::detail
