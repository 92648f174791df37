// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Stable sorting of small keys on a GPU, by digits of eight bits from the lowest on (CUB's radix sort would do, and
/// takes minutes to compile). For lists of tokens, which are short: three launches a digit, no atomics on global
/// memory.

#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/rows.hpp>

#include <cstdint>
#include <utility>

namespace tutti::kernel::cuda::detail {

inline constexpr int sort_digits = 256, sort_tile = 1024;  ///< values of a digit; keys of a block

/// Keys with a value each, and as much room again. Sorting goes back and forth between the two.
struct SortLists {
  std::uint32_t* keys;
  std::int32_t* values;
  std::uint32_t* other_keys;
  std::int32_t* other_values;
  std::int32_t* counts;  ///< sort_counts(count) of them

  static std::int64_t blocks(std::int64_t count) { return (count + sort_tile - 1) / sort_tile; }
  static std::int64_t sort_counts(std::int64_t count) { return blocks(count) * sort_digits; }
};

struct SortPass {
  SortLists lists;
  std::int64_t count;
  int shift;

  __device__ int digit(std::uint32_t key) const { return static_cast<int>(key >> shift) & (sort_digits - 1); }
};

/// counts[digit][block]
template <class = void>
__global__ void __launch_bounds__(256) count_digits(SortPass const args) {
  __shared__ int counts[sort_digits];
  counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int round = 0; round < sort_tile / 256; ++round) {
    std::int64_t const i = std::int64_t{blockIdx.x} * sort_tile + round * 256 + threadIdx.x;
    if (i < args.count) atomicAdd(&counts[args.digit(args.lists.keys[i])], 1);
  }
  __syncthreads();
  args.lists.counts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

struct ScanCounts {
  std::int32_t* counts;
  std::int64_t size;
};
/// One block: every count becomes the sum of those before it.
template <class = void>
__global__ void __launch_bounds__(1024) scan_counts(ScanCounts const args) {
  __shared__ int of_warp[most_warps];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int carried = 0;
  for (std::int64_t first = 0; first < args.size; first += 1024) {
    std::int64_t const i = first + threadIdx.x;
    int const own = i < args.size ? args.counts[i] : 0;
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      int const before = __shfl_up_sync(0xffffffffu, sum, static_cast<unsigned>(distance));
      if (lane >= distance) sum += before;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int before = carried;
    for (int other = 0; other < most_warps; ++other) {
      if (other < warp) before += of_warp[other];
      carried += of_warp[other];
    }
    if (i < args.size) args.counts[i] = before + sum - own;
    __syncthreads();
  }
}

/// Each of eight warps places 128 keys in their order: behind those of smaller digits, of earlier blocks, of earlier
/// warps, of its own earlier rounds, of its lower lanes.
template <class = void>
__global__ void __launch_bounds__(256) place_keys(SortPass const args) {
  constexpr int rounds = sort_tile / 256;
  __shared__ int counts[8][sort_digits];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int other = 0; other < 8; ++other) counts[other][threadIdx.x] = 0;
  __syncthreads();
  std::uint32_t keys[rounds];
  int before[rounds];
  std::int64_t const first = std::int64_t{blockIdx.x} * sort_tile + warp * (32 * rounds) + lane;
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    std::int64_t const i = first + round * 32;
    bool const is_key = i < args.count;
    keys[round] = is_key ? args.lists.keys[i] : 0;
    int const digit = args.digit(keys[round]);
    unsigned peers = __ballot_sync(0xffffffffu, is_key);
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
      bool const set = (digit >> bit & 1) != 0;
      unsigned const with_bit = __ballot_sync(0xffffffffu, set);
      peers &= set ? with_bit : ~with_bit;
    }
    int const lower = __popc(peers & ((1u << lane) - 1));
    before[round] = counts[warp][digit] + lower;
    __syncwarp();
    if (is_key && lower == 0) counts[warp][digit] += __popc(peers);
    __syncwarp();
  }
  __syncthreads();
  int at = args.lists.counts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x];
  for (int other = 0; other < 8; ++other) at += std::exchange(counts[other][threadIdx.x], at);
  __syncthreads();
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    std::int64_t const i = first + round * 32;
    if (i >= args.count) continue;
    int const to = counts[warp][args.digit(keys[round])] + before[round];
    args.lists.other_keys[to] = keys[round];
    args.lists.other_values[to] = args.lists.values[i];
  }
}

/// Sorts by the `bits` low bits of the keys; values of equal keys keep their order. The result lies in `keys` and
/// `values` of the lists returned. Fewer than 2^31 keys.
inline SortLists sort_by_key(Context& context, SortLists lists, std::int64_t count, int bits) {
  for (int shift = 0; shift < bits && count > 0; shift += 8) {
    SortPass const pass{lists, count, shift};
    launch_blocks(context, SortLists::blocks(count), 256, count_digits<>, pass);
    launch_blocks(context, 1, 1024, scan_counts<>, ScanCounts{lists.counts, SortLists::sort_counts(count)});
    launch_blocks(context, SortLists::blocks(count), 256, place_keys<>, pass);
    std::swap(lists.keys, lists.other_keys);
    std::swap(lists.values, lists.other_values);
  }
  return lists;
}

}  // namespace tutti::kernel::cuda::detail
