// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sums over the rows of a matrix on a GPU, in two kernels without atomic operations: blocks of rows first, then the
/// sums of the blocks in their order. How rows are cut depends on the shape alone, so the bits are the same on every
/// device.

#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/vector.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::kernel::cuda {

/// Shapes    x (rows, columns), rows `stride` elements apart; out (columns); T float or bfloat16
/// Computes  out = sum over rows of x [+ out, where `accumulate`]: the gradient of a bias
/// Numerics  summed in fp32, in an order that depends on the shape alone.
template <class T>
struct ColumnSumOf {
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;
  T const* x = nullptr;
  float* out = nullptr;
  bool accumulate = false;
};

namespace detail {

/// Where Outputs sums of `columns` each belong; those that nobody wants are null.
template <int Outputs>
struct ColumnSums {
  std::int64_t columns = 0;
  float* out[Outputs] = {};
  bool accumulate = false;
};

/// Scratch for partial sums; the next call that asks for scratch overwrites it in stream order.
inline float* partial_sums(Context& context, std::int64_t floats) {
  return static_cast<float*>(context.scratch(static_cast<std::size_t>(floats) * sizeof(float)));
}

template <int Outputs>
struct PartialSums {
  float const* partial;  ///< (blocks, Outputs, columns)
  std::int64_t blocks;
  ColumnSums<Outputs> sums;
};

/// A warp reads 32 columns of every 32nd block: few blocks a warp, because nothing else hides the latency here.
template <int Outputs>
__global__ void __launch_bounds__(1024) add_block_sums(__grid_constant__ PartialSums<Outputs> const args) {
  begin_kernel();
  __shared__ float room[32][33];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const column = std::int64_t{blockIdx.x} * 32 + lane;
  int const output = static_cast<int>(blockIdx.y);
  float* const out = args.sums.out[output];
  if (out == nullptr) return;
  float sum = 0;
  if (column < args.sums.columns) {
    float const* const from = args.partial + output * args.sums.columns + column;
#pragma unroll 4
    for (std::int64_t block = warp; block < args.blocks; block += 32)
      sum += from[block * Outputs * args.sums.columns];
  }
  room[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= args.sums.columns) return;
  float total = args.sums.accumulate ? out[column] : 0.0f;
  for (int other = 0; other < 32; ++other) total += room[other][lane];
  out[column] = total;
}

template <int Outputs>
void add_partial_sums(Context& context, float const* partial, std::int64_t blocks, ColumnSums<Outputs> const& sums) {
  dim3 const grid(static_cast<unsigned>((sums.columns + 31) / 32), static_cast<unsigned>(Outputs));
  launch_own(context.stream(), {.grid = grid, .block = 1024}, add_block_sums<Outputs>,
             PartialSums<Outputs>{partial, blocks, sums});
}

template <class Terms, int Outputs>
struct ColumnBlocks {
  Terms terms;
  std::int64_t rows, columns, block_rows;
  float* partial;  ///< (blocks, Outputs, columns)
};

/// One block: 32 N columns of `block_rows` rows, of which each of eight warps takes every eighth. Four rows in flight a
/// thread are 64 bytes, 64 KB for the 1,024 threads of a processor.
template <class Terms, int Outputs, int N>
__global__ void __launch_bounds__(256) column_block_sums(ColumnBlocks<Terms, Outputs> const args) {
  begin_kernel();
  __shared__ float room[8][N][32];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const column = (std::int64_t{blockIdx.x} * 32 + lane) * N;
  std::int64_t const begin = std::int64_t{blockIdx.y} * args.block_rows;
  std::int64_t const end = begin + args.block_rows < args.rows ? begin + args.block_rows : args.rows;
  float sums[Outputs][N] = {};
  if (column < args.columns) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += 8) args.terms.template add<N>(row, column, sums);
  }
#pragma unroll
  for (int output = 0; output < Outputs; ++output) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) room[warp][j][lane] = sums[output][j];
    __syncthreads();
    if (warp != 0 || column >= args.columns) continue;
    float total[N] = {};
#pragma unroll
    for (int j = 0; j < N; ++j)
      for (int other = 0; other < 8; ++other) total[j] += room[other][j][lane];
    store(args.partial + (blockIdx.y * std::int64_t{Outputs} + output) * args.columns + column, total);
  }
}

/// Sums over rows of what `terms.add<N>(row, first column, sums)` adds for N columns; `vectors` is true where it can do
/// so for a 16-byte access of T. Needs the scratch memory.
template <class T, class Terms, int Outputs>
void sum_columns(Context& context, Terms const& terms, std::int64_t rows, bool vectors,
                 ColumnSums<Outputs> const& sums) {
  int const width = vectors ? vector_size<T> : 1;
  std::int64_t const tiles = (sums.columns + 32 * width - 1) / (32 * width);
  std::int64_t const blocks = std::clamp<std::int64_t>(528 / tiles, 1, std::max<std::int64_t>(1, (rows + 63) / 64));
  ColumnBlocks<Terms, Outputs> const args{terms, rows, sums.columns, (rows + blocks - 1) / blocks,
                                          partial_sums(context, blocks * Outputs * sums.columns)};
  tutti::cuda::LaunchShape const shape{.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(blocks)),
                                       .block = 256};
  if (vectors) launch_own(context.stream(), shape, column_block_sums<Terms, Outputs, vector_size<T>>, args);
  else launch_own(context.stream(), shape, column_block_sums<Terms, Outputs, 1>, args);
  add_partial_sums(context, args.partial, blocks, sums);
}

template <class T>
struct MatrixColumns {
  T const* x;
  std::int64_t stride;

  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[1][N]) const {
    float values[N];
    load(x + row * stride + column, values);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0][j] += values[j];
  }
};

}  // namespace detail

/// See ColumnSumOf. Cost: one read of x.
template <class T>
void column_sum(Context& context, ColumnSumOf<T> const& args) {
  if (args.columns <= 0) return;
  bool const vectors =
      detail::vectors_fit<T>(args.columns, {args.x, args.out}) && args.stride % detail::vector_size<T> == 0;
  detail::sum_columns<T>(context, detail::MatrixColumns<T>{args.x, args.stride}, args.rows, vectors,
                         detail::ColumnSums<1>{args.columns, {args.out}, args.accumulate});
}

}  // namespace tutti::kernel::cuda
