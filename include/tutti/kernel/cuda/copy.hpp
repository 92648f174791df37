// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Moving bytes on a GPU: copies between strided boxes, and filling.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/exec/cuda/launch.hpp>
#include <tutti/exec/cuda/memory.hpp>
#include <tutti/kernel/box.hpp>
#include <tutti/kernel/cuda/context.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/cuda/rows.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::kernel::cuda {

namespace detail {

/// A box as kernels walk it: positions in row-major order.
struct CopyWalk {
  std::byte const* from;
  std::byte* to;
  std::int64_t count;
  int rank;
  std::int64_t extents[Shape::max_rank], from_strides[Shape::max_rank], to_strides[Shape::max_rank];  ///< in units

  template <class Index>
  __device__ void offsets(Index position, std::int64_t& from_offset, std::int64_t& to_offset) const {
    from_offset = to_offset = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      Index const extent = static_cast<Index>(extents[axis]), outer = position / extent;
      std::int64_t const here = position - outer * extent;
      from_offset += here * from_strides[axis];
      to_offset += here * to_strides[axis];
      position = outer;
    }
    from_offset += static_cast<std::int64_t>(position) * from_strides[0];
    to_offset += static_cast<std::int64_t>(position) * to_strides[0];
  }
};

/// Four units a thread, 256 apart, read before the first is written.
template <class Unit, class Index>
__global__ void __launch_bounds__(256) copy_units(__grid_constant__ CopyWalk const args) {
  begin_kernel();
  constexpr int batch = 4;
  auto const* const from = reinterpret_cast<Unit const*>(args.from);
  auto* const to = reinterpret_cast<Unit*>(args.to);
  Index const first = static_cast<Index>(blockIdx.x) * (batch * 256) + threadIdx.x;
  Index const count = static_cast<Index>(args.count);
  Unit values[batch];
  std::int64_t targets[batch];
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    Index const position = first + static_cast<Index>(b) * 256;
    if (position >= count) continue;
    std::int64_t source;
    args.offsets(position, source, targets[b]);
    values[b] = from[source];
  }
#pragma unroll
  for (int b = 0; b < batch; ++b)
    if (first + static_cast<Index>(b) * 256 < count) to[targets[b]] = values[b];
}

/// Planes in which one side is contiguous along the rows and the other along the columns.
struct TransposeWalk {
  CopyWalk planes;  ///< the other axes: one position a plane
  std::int64_t rows, columns;
  std::int64_t from_row, to_column;  ///< strides; from_column and to_row are 1
  std::int64_t row_tiles, column_tiles;
};

/// Tiles of 32 x 32 by way of shared memory, so that both sides move whole sectors; the odd row length of the tile
/// keeps its columns in different banks.
template <class Unit>
__global__ void __launch_bounds__(256) transpose_tiles(__grid_constant__ TransposeWalk const args) {
  begin_kernel();
  __shared__ Unit tile[32][33];
  std::int64_t const tiles = args.row_tiles * args.column_tiles, plane = blockIdx.x / tiles,
                     within = blockIdx.x - plane * tiles;
  std::int64_t const row = within / args.column_tiles * 32, column = within % args.column_tiles * 32;
  int const lane = static_cast<int>(threadIdx.x) % 32, line = static_cast<int>(threadIdx.x) / 32;
  std::int64_t from_offset, to_offset;
  args.planes.offsets(plane, from_offset, to_offset);
  auto const* const from = reinterpret_cast<Unit const*>(args.planes.from) + from_offset;
  auto* const to = reinterpret_cast<Unit*>(args.planes.to) + to_offset;
#pragma unroll
  for (int k = line; k < 32; k += 8)
    if (row + k < args.rows && column + lane < args.columns)
      tile[k][lane] = from[(row + k) * args.from_row + column + lane];
  __syncthreads();
#pragma unroll
  for (int k = line; k < 32; k += 8)
    if (column + k < args.columns && row + lane < args.rows)
      to[(column + k) * args.to_column + row + lane] = tile[lane][k];
}

template <class Unit>
struct FillUnits {
  Unit* to;
  std::int64_t count;
  Unit value;
};
template <class Unit>
__global__ void __launch_bounds__(256) fill_units(FillUnits<Unit> const args) {
  begin_kernel();
  for (std::int64_t i = std::int64_t{blockIdx.x} * 256 + threadIdx.x; i < args.count;
       i += std::int64_t{gridDim.x} * 256)
    args.to[i] = args.value;
}

template <class F>
void with_unit(std::int64_t size, F&& f) {
  switch (size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    case 8: return f(uint2{});
    case 16: return f(uint4{});
    default: break;
  }
  throw Error(ErrorKind::internal, "strided_copy",
              concat("elements of ", size, " bytes: 1, 2, 4, 8 and 16 are possible"));
}

inline void copy_box(Context& context, Box<2> const& box, std::int64_t size, std::byte const* from, std::byte* to) {
  CopyWalk walk{from, to, 1, box.rank, {}, {}, {}};
  for (int axis = 0; axis < box.rank; ++axis) {
    walk.extents[axis] = box.extent(axis);
    walk.from_strides[axis] = box.stride(0, axis);
    walk.to_strides[axis] = box.stride(1, axis);
    walk.count *= box.extent(axis);
  }
  with_unit(size, [&]<class Unit>(Unit) {
    std::int64_t const blocks = (walk.count + 1023) / 1024;
    if (walk.count < std::int64_t{1} << 31)
      launch_blocks(context, blocks, 256, copy_units<Unit, std::uint32_t>, walk);
    else launch_blocks(context, blocks, 256, copy_units<Unit, std::int64_t>, walk);
  });
}

/// Both sides are contiguous along the innermost axis: whole units of up to 16 bytes move.
inline void copy_contiguous(Context& context, Box<2> box, std::int64_t size, std::byte const* from, std::byte* to) {
  int const inner = box.rank - 1;
  std::int64_t unit = size;
  auto const fits = [&](std::int64_t bytes) {
    bool good = reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(bytes) == 0 &&
                reinterpret_cast<std::uintptr_t>(to) % static_cast<std::uintptr_t>(bytes) == 0 &&
                box.inner() * size % bytes == 0;
    for (int axis = 0; axis < inner; ++axis)
      good = good && box.stride(0, axis) * size % bytes == 0 && box.stride(1, axis) * size % bytes == 0;
    return good;
  };
  while (unit < 16 && fits(unit * 2)) unit *= 2;
  auto const at = [](int axis) { return static_cast<std::size_t>(axis); };
  box.extents[at(inner)] = box.inner() * size / unit;
  for (int axis = 0; axis < inner; ++axis)
    for (std::size_t operand = 0; operand < 2; ++operand)
      box.strides[operand][at(axis)] = box.strides[operand][at(axis)] * size / unit;
  copy_box(context, box, unit, from, to);
}

inline void transpose_box(Context& context, Box<2> const& box, std::int64_t size, std::byte const* from, std::byte* to,
                          int row_axis, int column_axis) {
  TransposeWalk walk{{from, to, 1, 0, {1}, {}, {}},
                     box.extent(row_axis),
                     box.extent(column_axis),
                     box.stride(0, row_axis),
                     box.stride(1, column_axis),
                     (box.extent(row_axis) + 31) / 32,
                     (box.extent(column_axis) + 31) / 32};
  for (int axis = 0; axis < box.rank; ++axis) {
    if (axis == row_axis || axis == column_axis) continue;
    int const place = walk.planes.rank++;
    walk.planes.extents[place] = box.extent(axis);
    walk.planes.from_strides[place] = box.stride(0, axis);
    walk.planes.to_strides[place] = box.stride(1, axis);
    walk.planes.count *= box.extent(axis);
  }
  with_unit(size, [&]<class Unit>(Unit) {
    launch_blocks(context, walk.planes.count * walk.row_tiles * walk.column_tiles, 256, transpose_tiles<Unit>, walk);
  });
}

}  // namespace detail

/// Zeros. Cost: one write.
template <class T>
void zero(Context& context, T* to, std::int64_t count) {
  if (count > 0)
    tutti::cuda::fill_bytes(context.stream(), to, 0, static_cast<std::size_t>(count) * sizeof(T));
}

/// `count` elements of `value`. Cost: one write.
template <class T>
void fill(Context& context, T* to, std::int64_t count, T value) {
  if (count > 0)
    detail::launch_blocks(context, std::min<std::int64_t>((count + 255) / 256, 1 << 20), 256, detail::fill_units<T>,
                          detail::FillUnits<T>{to, count, value});
}

/// See kernel::StridedCopy. The two boxes do not overlap; a stride of 0 in `from` repeats. Errors: internal (element
/// size).
/// Cost: one read, one write, in units of 16 bytes where both sides are contiguous along the same axis, by tiles in
/// shared memory where they are along different ones; else element by element.
inline void strided_copy(Context& context, StridedCopy const& args) {
  std::int64_t const size = args.element_size;
  detail::with_unit(size, [](auto) {});
  if (args.shape.size() == 0) return;
  Box<2> box(args.shape, 2);
  box.strides[0] = args.from_strides;
  box.strides[1] = args.to_strides;
  box.merge();
  auto const* const from = static_cast<std::byte const*>(args.from);
  auto* const to = static_cast<std::byte*>(args.to);
  int const inner = box.rank - 1;
  if (box.stride(0, inner) == 1 && box.stride(1, inner) == 1)
    return detail::copy_contiguous(context, box, size, from, to);
  int from_axis = -1, to_axis = -1;
  for (int axis = 0; axis < box.rank; ++axis) {
    if (box.stride(0, axis) == 1) from_axis = axis;
    if (box.stride(1, axis) == 1) to_axis = axis;
  }
  if (from_axis >= 0 && to_axis >= 0 && from_axis != to_axis && box.extent(from_axis) >= 8 && box.extent(to_axis) >= 8)
    return detail::transpose_box(context, box, size, from, to, to_axis, from_axis);
  detail::copy_box(context, box, size, from, to);
}

}  // namespace tutti::kernel::cuda
