// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Products with weights that are stored in blocks on a GPU. Lanes of a warp read neighbouring numbers of a row, each
/// the code of its own and the scales that all of them share, so weights cross memory once as they are stored. Up to
/// eight rows a warp has a row of the weight for itself; more rows share tiles of widened numbers.

#include <tutti/core/block_element.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/kernel/block_product.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/cuda/swiglu.hpp>

#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

inline constexpr int block_rows_few = static_cast<int>(block_product_few_rows);
inline constexpr int block_tile = 32;  ///< rows and outputs of a block of threads

/// Number i of a row that begins at `blocks`. Bytes of a block are read as such: F32 alone is aligned to 4 bytes.
template <class Block>
__device__ __forceinline__ float block_number(Block const* blocks, std::int64_t i) {
  constexpr int elements = block_elements(Block::type);
  return blocks::element(blocks[i / elements], static_cast<int>(i % elements));
}
template <class Block>
__device__ __forceinline__ Block const* block_row(BlockMatrix const& matrix, std::int64_t row) {
  constexpr int elements = block_elements(Block::type);
  return reinterpret_cast<Block const*>(matrix.data) + row * (matrix.in / elements);
}
__device__ __forceinline__ void finish_product(BlockProduct const& op, std::int64_t row, std::int64_t o, float sum) {
  if (op.bias != nullptr) sum += op.bias[o];
  if (op.residual != nullptr) sum += op.residual[row * op.residual_stride + o];
  op.y[row * op.y_stride + o] = sum;
}

/// A warp an output.
template <class Block>
__global__ void __launch_bounds__(256) block_product_few(BlockProduct const op) {
  begin_kernel();
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const o = std::int64_t{blockIdx.x} * 8 + warp;
  if (o >= op.weight.out) return;
  Block const* const row = block_row<Block>(op.weight, o);
  float sums[block_rows_few] = {};
#pragma unroll 4
  for (std::int64_t i = lane; i < op.weight.in; i += 32) {
    float const weight = block_number(row, i);
#pragma unroll
    for (int r = 0; r < block_rows_few; ++r)
      if (r < op.rows) sums[r] = fmaf(op.x[r * op.x_stride + i], weight, sums[r]);
  }
#pragma unroll
  for (int r = 0; r < block_rows_few; ++r)
    if (r < op.rows) {
      float const sum = warp_sum(sums[r]);
      if (lane == 0) finish_product(op, r, o, sum);
    }
}

/// A tile of 32 outputs (x) and 32 rows (y) a block: a thread has an output in four rows.
template <class Block>
__global__ void __launch_bounds__(256) block_product_tiles(BlockProduct const op) {
  begin_kernel();
  __shared__ float left[block_tile][block_tile + 1], right[block_tile][block_tile + 1];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const first_out = std::int64_t{blockIdx.x} * block_tile;
  std::int64_t const first_row = std::int64_t{blockIdx.y} * block_tile;
  float sums[4] = {};
  for (std::int64_t k = 0; k < op.weight.in; k += block_tile) {
    bool const there = k + lane < op.weight.in;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int const line = warp + 8 * j;
      std::int64_t const row = first_row + line, o = first_out + line;
      left[line][lane] = there && row < op.rows ? op.x[row * op.x_stride + k + lane] : 0.0f;
      right[line][lane] =
          there && o < op.weight.out ? block_number(block_row<Block>(op.weight, o), k + lane) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < block_tile; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[j] = fmaf(left[warp + 8 * j][i], right[lane][i], sums[j]);
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (std::int64_t const row = first_row + warp + 8 * j; row < op.rows && first_out + lane < op.weight.out)
      finish_product(op, row, first_out + lane, sums[j]);
}

inline void check_blocks(char const* operation, std::int64_t rows, BlockMatrix const& weight) {
  if (rows < 0 || weight.out < 0 || weight.in < 0)
    throw Error(ErrorKind::shape, operation, "a size is negative");
  static_cast<void>(row_bytes(weight.type, weight.in));
}

}  // namespace detail

/// See kernel::BlockProduct.
/// Numerics  float32 fused multiply-adds. x stays as it is, for few rows too: results are nearer to the weights'
///           numbers than those of processors, which round x to int8 there.
inline void block_product(Context& context, BlockProduct const& op) {
  detail::check_blocks("block_product", op.rows, op.weight);
  if (op.rows == 0 || op.weight.out == 0) return;
  blocks::with_block(op.weight.type, [&]<class Block>(Block) {
    auto const groups = [](std::int64_t count, std::int64_t each) {
      return static_cast<unsigned>((count + each - 1) / each);
    };
    if (op.rows <= detail::block_rows_few)
      launch_own(context.stream(), {.grid = dim3(groups(op.weight.out, 8)), .block = dim3(256)},
                 detail::block_product_few<Block>, op);
    else
      launch_own(context.stream(),
                 {.grid = dim3(groups(op.weight.out, detail::block_tile), groups(op.rows, detail::block_tile)),
                  .block = dim3(256)},
                 detail::block_product_tiles<Block>, op);
  });
}

/// See kernel::BlockSwiGlu; numerics as of block_product. Needs the scratch memory, for the gate's products.
inline void block_swiglu(Context& context, BlockSwiGlu const& op) {
  detail::check_blocks("block_swiglu", op.rows, op.gate);
  if (op.gate.out != op.up.out || op.gate.in != op.up.in)
    throw Error(ErrorKind::shape, "block_swiglu",
                concat("gate (", op.gate.out, ", ", op.gate.in, ") and up (", op.up.out, ", ", op.up.in, ") differ"));
  if (op.rows == 0 || op.gate.out == 0) return;
  std::int64_t const out = op.gate.out;
  auto* const gate = static_cast<float*>(context.scratch(static_cast<std::size_t>(op.rows * out) * sizeof(float)));
  block_product(context, {.rows = op.rows, .x = op.x, .x_stride = op.x_stride, .weight = op.gate, .y = gate,
                          .y_stride = out});
  block_product(context, {.rows = op.rows, .x = op.x, .x_stride = op.x_stride, .weight = op.up, .y = op.y,
                          .y_stride = op.y_stride});
  swiglu(context, SwiGluOf<float>{.rows = op.rows, .channels = out, .gate = gate, .gate_stride = out, .up = op.y,
                                  .up_stride = op.y_stride, .y = op.y, .y_stride = op.y_stride});
}

}  // namespace tutti::kernel::cuda
