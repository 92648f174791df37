// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Copies between strided boxes on the CPU: rows by memcpy, transposes in tiles of one cache line a side.
/// Moving bytes gains nothing from an instruction set of its own, so nothing here is stamped.

#include <tutti/core/error.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/kernel/cpu/box.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::kernel::cpu {

namespace detail {

/// rows x columns elements; the steps are in elements. Tiles keep the lines of the operand that is walked across in L1.
template <class T>
void copy_plane(T const* from, std::int64_t from_row, std::int64_t from_column, T* to, std::int64_t to_row, std::int64_t to_column,
                std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t side = 16;
  for (std::int64_t row = 0; row < rows; row += side)
    for (std::int64_t column = 0; column < columns; column += side) {
      std::int64_t const row_end = std::min(row + side, rows), column_end = std::min(column + side, columns);
      for (std::int64_t i = row; i < row_end; ++i)
        for (std::int64_t j = column; j < column_end; ++j) to[i * to_row + j * to_column] = from[i * from_row + j * from_column];
    }
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
  throw Error(ErrorKind::internal, "strided_copy", "elements of " + std::to_string(size) + " bytes: 1, 2, 4, 8 and 16 are possible");
}

/// The innermost axis is contiguous on both sides. Flat elements [begin, end).
inline void copy_rows(Box<2> const& box, std::int64_t size, std::byte const* from, std::byte* to, std::int64_t begin, std::int64_t end) {
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
  for (auto& strides : box.strides) std::swap(strides[static_cast<std::size_t>(best)], strides[static_cast<std::size_t>(box.rank - 2)]);
}

}  // namespace detail

/// See kernel::StridedCopy. The two boxes do not overlap; a stride of 0 in `from` repeats. Errors: internal (element size).
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
  // A plane is the two inner axes; strips of 16 of its rows are the unit of work.
  bool const flat = box.rank == 1;
  std::int64_t const rows = flat ? 1 : box.extent(box.rank - 2), columns = box.inner();
  std::int64_t const strips = (rows + 15) / 16;
  std::int64_t const strip_size = 16 * columns;
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
        std::int64_t const plane = index / strips, row = index % strips * 16;
        std::int64_t const position = plane * rows + row;
        detail::copy_plane(reinterpret_cast<T const*>(from) + box.row_offset(0, position), box.stride(0, row_axis),
                           box.stride(0, column_axis), reinterpret_cast<T*>(to) + box.row_offset(1, position),
                           box.stride(1, row_axis), box.stride(1, column_axis), std::min<std::int64_t>(16, rows - row), columns);
      }
    });
  });
}

}  // namespace tutti::kernel::cpu
