// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sum and maximum over any axes on a GPU, without atomic operations: the reduced positions are cut into parts by the
/// shape alone, and the parts are combined in order.

#include <tutti/kernel/box.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/launch.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

/// Positions of some of a box's axes in row-major order, and where each lies.
struct ReducePositions {
  int rank = 0;
  std::int64_t extents[Shape::max_rank] = {1}, strides[Shape::max_rank] = {};

  ReducePositions(Box<1> const& box, bool reduced) {
    for (int axis = 0; axis < box.rank; ++axis) {
      if (box.marked(axis) != reduced) continue;
      extents[rank] = box.extent(axis);
      strides[rank++] = box.stride(0, axis);
    }
  }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= extents[axis];
    return product;
  }
  std::int64_t inner_stride() const { return rank == 0 ? 0 : strides[rank - 1]; }
  __device__ std::int64_t offset(std::int64_t position) const {
    std::int64_t result = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      std::int64_t const outer = position / extents[axis];
      result += (position - outer * extents[axis]) * strides[axis];
      position = outer;
    }
    return result + position * strides[0];
  }
};

struct ReduceParts {
  float const* x;
  float* out;  ///< (parts, outputs)
  ReducePositions kept, reduced;
  std::int64_t outputs, count, part;
};

template <bool Maximum>
__device__ float nothing() {
  return Maximum ? -INFINITY : 0.0f;
}
/// NaN where either is.
template <bool Maximum>
__device__ float combined(float a, float b) {
  if constexpr (Maximum) return a > b || a != a ? a : b;
  else return a + b;
}

/// Group threads walk over the reduced positions of one output: what is reduced lies side by side, or nothing does.
template <bool Maximum, int Group>
__global__ void __launch_bounds__(256) reduce_along(__grid_constant__ ReduceParts const args) {
  begin_kernel();
  __shared__ float room[8];
  int const thread = static_cast<int>(threadIdx.x) % Group;
  std::int64_t const output = std::int64_t{blockIdx.x} * (256 / Group) + static_cast<int>(threadIdx.x) / Group;
  std::int64_t const begin = std::int64_t{blockIdx.y} * args.part;
  std::int64_t const end = begin + args.part < args.count ? begin + args.part : args.count;
  float value = nothing<Maximum>();
  if (output < args.outputs) {
    float const* const x = args.x + args.kept.offset(output);
#pragma unroll 4
    for (std::int64_t position = begin + thread; position < end; position += Group)
      value = combined<Maximum>(value, x[args.reduced.offset(position)]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = combined<Maximum>(value, __shfl_xor_sync(0xffffffffu, value, distance));
  if constexpr (Group > 32) {
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[0];
    for (int warp = 1; warp < 8; ++warp) value = combined<Maximum>(value, room[warp]);
  }
  if (thread == 0 && output < args.outputs) args.out[std::int64_t{blockIdx.y} * args.outputs + output] = value;
}

/// What is kept lies side by side: a warp has 32 outputs, and eight warps share the reduced positions.
template <bool Maximum>
__global__ void __launch_bounds__(256) reduce_across(__grid_constant__ ReduceParts const args) {
  begin_kernel();
  __shared__ float room[8][32];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const output = std::int64_t{blockIdx.x} * 32 + lane;
  std::int64_t const begin = std::int64_t{blockIdx.y} * args.part;
  std::int64_t const end = begin + args.part < args.count ? begin + args.part : args.count;
  float value = nothing<Maximum>();
  if (output < args.outputs) {
    float const* const x = args.x + args.kept.offset(output);
#pragma unroll 4
    for (std::int64_t position = begin + warp; position < end; position += 8)
      value = combined<Maximum>(value, x[args.reduced.offset(position)]);
  }
  room[warp][lane] = value;
  __syncthreads();
  if (warp != 0 || output >= args.outputs) return;
  for (int other = 1; other < 8; ++other) value = combined<Maximum>(value, room[other][lane]);
  args.out[std::int64_t{blockIdx.y} * args.outputs + output] = value;
}

struct CombineParts {
  float const* partial;  ///< (parts, outputs)
  float* out;
  std::int64_t outputs, parts;
};
template <bool Maximum>
__global__ void __launch_bounds__(256) combine_parts(CombineParts const args) {
  begin_kernel();
  std::int64_t const output = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (output >= args.outputs) return;
  float value = nothing<Maximum>();
#pragma unroll 8
  for (std::int64_t part = 0; part < args.parts; ++part)
    value = combined<Maximum>(value, args.partial[part * args.outputs + output]);
  args.out[output] = value;
}

template <bool Maximum>
void run_reduce(Context& context, Reduce const& args, ReducePositions const& kept, ReducePositions const& reduced) {
  ReduceParts parts{args.x, args.out, kept, reduced, kept.count(), reduced.count(), 0};
  bool const across = kept.rank > 0 && kept.inner_stride() == 1;
  bool const whole_blocks = parts.count >= 1024;
  std::int64_t const of_block = across ? 32 : whole_blocks ? 1 : 8;
  std::int64_t const tiles = (parts.outputs + of_block - 1) / of_block;
  // Enough blocks for an H200, none with less than a few loads a thread.
  std::int64_t const most = (parts.count + (across ? 255 : 4095)) / (across ? 256 : 4096);
  std::int64_t const blocks = std::clamp<std::int64_t>(528 / tiles, 1, std::max<std::int64_t>(1, most));
  parts.part = (parts.count + blocks - 1) / blocks;
  if (blocks > 1)
    parts.out = static_cast<float*>(context.scratch(static_cast<std::size_t>(blocks * parts.outputs) * sizeof(float)));
  auto const kernel =
      across ? reduce_across<Maximum> : whole_blocks ? reduce_along<Maximum, 256> : reduce_along<Maximum, 32>;
  launch_own(context.stream(),
             {.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(blocks)), .block = dim3(256)}, kernel,
             parts);
  if (blocks > 1)
    launch_blocks(context, (parts.outputs + 255) / 256, 256, combine_parts<Maximum>,
                  CombineParts{parts.out, args.out, parts.outputs, blocks});
}

}  // namespace detail

/// See kernel::Reduce. The sum of nothing is 0. A NaN makes the maximum NaN. The order of additions depends on the
/// shape alone. Cost: one read.
inline void reduce(Context& context, Reduce const& args) {
  Box<1> box(args.shape, 1);
  box.strides[0] = args.strides;
  box.marks = args.axes;
  box.merge();
  detail::ReducePositions const kept(box, false), reduced(box, true);
  if (kept.count() == 0) return;
  if (args.maximum) detail::run_reduce<true>(context, args, kept, reduced);
  else detail::run_reduce<false>(context, args, kept, reduced);
}

}  // namespace tutti::kernel::cuda
