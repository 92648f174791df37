// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies between strided boxes on the CPU: rows by memcpy, transposes in tiles of a few cache lines a side.
/// Moving bytes gains nothing from an instruction set of its own, so nothing here is stamped.

#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/box.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::kernel::cpu {

namespace detail {

/// Tiles of a plane: two cache lines of the side that is walked across, so that a visit to a page brings more than one,
/// and few enough pages for the TLB.
inline constexpr std::int64_t plane_side = 32;

/// 4 x 4 elements of 4 bytes whose rows are contiguous in `from` and whose columns are in `to`.
inline void transpose_4x4(std::uint32_t const* from, std::int64_t from_step, std::uint32_t* to, std::int64_t to_step) {
  typedef std::uint32_t Four __attribute__((vector_size(16)));
  Four r[4];
  for (int k = 0; k < 4; ++k) std::memcpy(&r[k], from + k * from_step, sizeof(Four));
  Four const low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
             high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  Four const low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
             high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  Four const columns[4] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int k = 0; k < 4; ++k) std::memcpy(to + k * to_step, &columns[k], sizeof(Four));
}

/// to[c * to_step + r] = from[r * from_step + c]. By way of a buffer, so that a source line is read once even where the
/// step makes all lines of the tile fall into the same set of the cache.
inline void transpose_tile(std::uint32_t const* from, std::int64_t from_step, std::uint32_t* to, std::int64_t to_step,
                           std::int64_t rows, std::int64_t columns) {
  alignas(64) std::uint32_t near[plane_side * plane_side];
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(near + r * plane_side, from + r * from_step, static_cast<std::size_t>(columns) * sizeof(std::uint32_t));
  std::int64_t const whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (std::int64_t c = 0; c < whole_columns; c += 4)
    for (std::int64_t r = 0; r < whole_rows; r += 4)
      transpose_4x4(near + r * plane_side + c, plane_side, to + c * to_step + r, to_step);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      std::memcpy(to + c * to_step + r, near + r * plane_side + c, sizeof(std::uint32_t));
}

template <class T>
void copy_tile(T const* from, std::int64_t from_row, std::int64_t from_column, T* to, std::int64_t to_row,
               std::int64_t to_column, std::int64_t rows, std::int64_t columns) {
  if constexpr (std::same_as<T, std::uint32_t>) {
    if (from_row == 1 && to_column == 1) return transpose_tile(from, from_column, to, to_row, columns, rows);
    if (from_column == 1 && to_row == 1) return transpose_tile(from, from_row, to, to_column, rows, columns);
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)  // bytes: the elements are not really of type T
      std::memcpy(to + i * to_row + j * to_column, from + i * from_row + j * from_column, sizeof(T));
}

/// rows x columns elements; the steps are in elements.
template <class T>
void copy_plane(T const* from, std::int64_t from_row, std::int64_t from_column, T* to, std::int64_t to_row,
                std::int64_t to_column, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; row += plane_side)
    for (std::int64_t column = 0; column < columns; column += plane_side)
      copy_tile(from + row * from_row + column * from_column, from_row, from_column,
                to + row * to_row + column * to_column, to_row, to_column, std::min(plane_side, rows - row),
                std::min(plane_side, columns - column));
}

struct Bytes16 {
  std::uint64_t words[2];
};

template <class F>
void with_size(std::int64_t size, F&& f) {
  switch (size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    case 8: return f(std::uint64_t{});
    case 16: return f(Bytes16{});
    default: break;
  }
  throw Error(ErrorKind::internal, "strided_copy",
              "elements of " + std::to_string(size) + " bytes: 1, 2, 4, 8 and 16 are possible");
}

/// The innermost axis is contiguous on both sides. Flat elements [begin, end).
inline void copy_rows(Box<2> const& box, std::int64_t size, std::byte const* from, std::byte* to, std::int64_t begin,
                      std::int64_t end) {
  std::int64_t const inner = box.inner();
  while (begin < end) {
    std::int64_t const row = begin / inner, column = begin % inner;
    std::int64_t const n = std::min(inner - column, end - begin);
    std::memcpy(to + (box.row_offset(1, row) + column) * size, from + (box.row_offset(0, row) + column) * size,
                static_cast<std::size_t>(n * size));
    begin += n;
  }
}

/// Brings an outer axis along which one side is contiguous next to the innermost.
inline void order_for_planes(Box<2>& box) {
  int best = -1;
  for (int axis = 0; axis < box.rank - 1; ++axis)
    if (box.stride(0, axis) == 1 || box.stride(1, axis) == 1) best = axis;
  if (best < 0 || best == box.rank - 2) return;
  std::swap(box.extents[static_cast<std::size_t>(best)], box.extents[static_cast<std::size_t>(box.rank - 2)]);
  for (auto& strides : box.strides)
    std::swap(strides[static_cast<std::size_t>(best)], strides[static_cast<std::size_t>(box.rank - 2)]);
}

}  // namespace detail

/// See kernel::StridedCopy. The two boxes do not overlap; a stride of 0 in `from` repeats. Errors: internal (element
/// size).
inline void strided_copy(exec::Context& context, StridedCopy const& args) {
  std::int64_t const size = args.element_size;
  detail::with_size(size, [](auto) {});
  std::int64_t const count = args.shape.size();
  if (count == 0) return;
  Box<2> box(args.shape, 2);
  box.strides[0] = args.from_strides;
  box.strides[1] = args.to_strides;
  box.merge();
  auto const* const from = static_cast<std::byte const*>(args.from);
  auto* const to = static_cast<std::byte*>(args.to);
  if (box.inner() == 1 || (box.stride(0, box.rank - 1) == 1 && box.stride(1, box.rank - 1) == 1)) {
    context.parallel_for(count, std::max<std::int64_t>(1, 65536 / size), [&](std::int64_t begin, std::int64_t end) {
      detail::copy_rows(box, size, from, to, begin, end);
    });
    return;
  }
  detail::order_for_planes(box);
  // A plane is the two inner axes; strips of its rows are the unit of work.
  bool const flat = box.rank == 1;
  std::int64_t const rows = flat ? 1 : box.extent(box.rank - 2), columns = box.inner();
  std::int64_t const strips = (rows + detail::plane_side - 1) / detail::plane_side;
  std::int64_t const strip_size = detail::plane_side * columns;
  if (flat) {
    context.parallel_for(columns, 8192, [&](std::int64_t begin, std::int64_t end) {
      detail::with_size(size, [&]<class T>(T) {
        std::int64_t const from_step = box.stride(0, 0), to_step = box.stride(1, 0);
        detail::copy_plane(reinterpret_cast<T const*>(from) + begin * from_step, 0, from_step,
                           reinterpret_cast<T*>(to) + begin * to_step, 0, to_step, 1, end - begin);
      });
    });
    return;
  }
  std::int64_t const planes = count / (rows * columns);
  std::int64_t const grain = std::max<std::int64_t>(1, 8192 / strip_size);
  context.parallel_for(planes * strips, grain, [&](std::int64_t begin, std::int64_t end) {
    detail::with_size(size, [&]<class T>(T) {
      int const row_axis = box.rank - 2, column_axis = box.rank - 1;
      for (std::int64_t index = begin; index < end; ++index) {
        std::int64_t const plane = index / strips, row = index % strips * detail::plane_side;
        std::int64_t const position = plane * rows + row;
        detail::copy_plane(reinterpret_cast<T const*>(from) + box.row_offset(0, position), box.stride(0, row_axis),
                           box.stride(0, column_axis), reinterpret_cast<T*>(to) + box.row_offset(1, position),
                           box.stride(1, row_axis), box.stride(1, column_axis),
                           std::min(detail::plane_side, rows - row), columns);
      }
    });
  });
}

}  // namespace tutti::kernel::cpu
