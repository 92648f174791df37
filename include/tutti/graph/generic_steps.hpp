// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Bodies of the steps that have no kernel of their own: fills, random bits, integer chains, and products and
/// reductions of types other than float32. Parallel over the team; every result is independent of the number of
/// threads.

#include <tutti/core/dtype.hpp>
#include <tutti/exec/context.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/graph/generic_indexing.hpp>
#include <tutti/graph/steps.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/tensor/random.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace tutti::graph::generic {

using Strides = std::array<std::int64_t, Shape::max_rank>;

/// Offset in elements of a position in row-major order.
inline std::int64_t offset_of(Shape const& shape, Strides const& strides, std::int64_t position) {
  std::int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    offset += position % shape[axis] * strides[static_cast<std::size_t>(axis)];
    position /= shape[axis];
  }
  return offset;
}

inline void fill(exec::Context& context, DType dtype, std::byte* data, std::int64_t count, double value) {
  std::byte pattern[8] = {};
  store_number(dtype, pattern, 0, value);
  std::size_t const size = size_of(dtype);
  bool uniform = true;
  for (std::size_t i = 1; i < size; ++i) uniform &= pattern[i] == pattern[0];
  context.parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    std::byte* const to = data + static_cast<std::size_t>(begin) * size;
    std::size_t const bytes = static_cast<std::size_t>(end - begin) * size;
    if (uniform) {
      std::memset(to, std::to_integer<int>(pattern[0]), bytes);
    } else {
      for (std::size_t at = 0; at < bytes; at += size) std::memcpy(to + at, pattern, size);
    }
  });
}

inline void iota(exec::Context& context, Ref const& y, std::byte* data, int axis) {
  std::int64_t const inner = y.shape.row_major_strides()[static_cast<std::size_t>(axis)], extent = y.shape[axis];
  context.parallel_for(y.shape.size(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store_number(y.dtype, data, i, static_cast<double>(i / inner % extent));
  });
}

inline void random_bits(exec::Context& context, std::byte* data, std::int64_t count, std::uint64_t seed,
                        std::uint64_t step, std::uint64_t stream, std::uint64_t first) {
  auto* const words = reinterpret_cast<std::uint32_t*>(data);
  context.parallel_for(count, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      std::uint64_t position = first + static_cast<std::uint64_t>(i);
      std::uint64_t const block = position / 4;
      auto const four = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(stream)},
                                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      do {
        words[i] = four[position % 4];
        ++i, ++position;
      } while (i < end && position % 4 != 0);
    }
  });
}

/// In order along the axis, floating sums in double. y may be x.
inline void cumsum(exec::Context& context, Ref const& x, std::byte const* from, std::byte* to, int axis,
                   bool reversed) {
  std::int64_t const extent = x.shape[axis], inner = x.shape.row_major_strides()[static_cast<std::size_t>(axis)];
  if (x.shape.size() == 0) return;
  auto const each = [&](auto add) {
    context.parallel_for(x.shape.size() / extent, std::max<std::int64_t>(1, 4096 / extent),
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t column = begin; column < end; ++column) {
                             std::int64_t const first = column / inner * extent * inner + column % inner;
                             add(reversed ? first + (extent - 1) * inner : first, reversed ? -inner : inner);
                           }
                         });
  };
  if (x.dtype == DType::float32) {
    each([&](std::int64_t at, std::int64_t step) {
      double sum = 0;
      for (std::int64_t k = 0; k < extent; ++k, at += step) {
        sum += double{reinterpret_cast<float const*>(from)[at]};
        reinterpret_cast<float*>(to)[at] = static_cast<float>(sum);
      }
    });
  } else if (is_floating(x.dtype)) {
    each([&](std::int64_t at, std::int64_t step) {
      double sum = 0;
      for (std::int64_t k = 0; k < extent; ++k, at += step)
        store_number(x.dtype, to, at, sum += number_at(x.dtype, from, at));
    });
  } else {
    each([&](std::int64_t at, std::int64_t step) {
      std::uint64_t sum = 0;
      for (std::int64_t k = 0; k < extent; ++k, at += step) {
        sum += static_cast<std::uint64_t>(integer_at(x.dtype, from, at));
        store_integer(x.dtype, to, at, static_cast<std::int64_t>(sum));
      }
    });
  }
}

/// Exact integer arithmetic where a kernel's float32 registers would round. Correct before fast: such chains are small.
/// Errors: unavailable (a function that integers do not have).
template <class Register>
void integer_elementwise(exec::Context& context, Step const& step, List<std::byte*> const& reads,
                         List<kernel::ElementwiseOutput> const& outputs) {
  require_integer_functions(step.instructions);
  Shape const& shape = step.writes[0].shape;
  context.parallel_for(shape.size(), 1024, [&](std::int64_t begin, std::int64_t end) {
    Register registers[16 + 64];
    for (std::int64_t i = begin; i < end; ++i) {
      std::size_t next = 0;
      for (std::size_t k = 0; k < step.reads.size(); ++k)
        registers[next++] = static_cast<Register>(
            integer_at(step.reads[k].dtype, reads[k], offset_of(shape, step.reads[k].strides, i)));
      auto const value = [&](std::int16_t r) { return r < 0 ? Register{0} : registers[static_cast<std::size_t>(r)]; };
      for (auto const& in : step.instructions) {
        std::int64_t const number = in.op == Op::constant ? as_integer(step.registers, in.value) : 0;
        Register result{};
        kernel::with_function<ElementwiseFunctions>(in.op, [&]<class Body>() {
          result = compute_integer<Body>(number, value(in.a), value(in.b), value(in.c));
        });
        registers[next++] = result;
      }
      for (auto const& out : outputs)
        store_integer(out.dtype, static_cast<std::byte*>(out.data), i, static_cast<std::int64_t>(value(out.source)));
    }
  });
}

/// c = a b in double, for floating types that have no kernel. a (Z..., M, K), b (Z..., K, N), c (Z..., M, N).
inline void product(exec::Context& context, Ref const& a, std::byte const* x, Ref const& b, std::byte const* y,
                    Ref const& c, std::byte* z) {
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  std::int64_t const columns = c.shape[batch + 1], depth = a.shape[batch + 1];
  context.parallel_for(c.shape.size(), std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(depth, 1)),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) {
                           std::int64_t const j = i % columns;
                           std::int64_t rest = i / columns;
                           std::int64_t const m = rest % c.shape[batch];
                           rest /= c.shape[batch];
                           std::int64_t from_a = m * a.strides[row], from_b = j * b.strides[column];
                           for (int axis = batch - 1; axis >= 0; --axis) {
                             std::int64_t const index = rest % c.shape[axis];
                             rest /= c.shape[axis];
                             from_a += index * a.strides[static_cast<std::size_t>(axis)];
                             from_b += index * b.strides[static_cast<std::size_t>(axis)];
                           }
                           double sum = 0;
                           for (std::int64_t k = 0; k < depth; ++k)
                             sum += number_at(a.dtype, x, from_a + k * a.strides[column]) *
                                    number_at(b.dtype, y, from_b + k * b.strides[row]);
                           store_number(c.dtype, z, i, sum);
                         }
                       });
}

/// Sum or maximum over `axes` for types that have no kernel; modulo 2^bits for integers.
inline void reduce(exec::Context& context, Ref const& x, std::byte const* from, std::uint32_t axes, bool maximum,
                   DType dtype, std::byte* to) {
  std::array<std::int64_t, Shape::max_rank> kept{}, reduced{};
  std::size_t kept_rank = 0, reduced_rank = 0;
  Strides kept_strides{}, reduced_strides{};
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    std::int64_t const extent = x.shape[axis], stride = x.strides[static_cast<std::size_t>(axis)];
    if ((axes >> axis & 1u) != 0) {
      reduced[reduced_rank] = extent;
      reduced_strides[reduced_rank++] = stride;
    } else {
      kept[kept_rank] = extent;
      kept_strides[kept_rank++] = stride;
    }
  }
  Shape const kept_shape(std::span<std::int64_t const>(kept.data(), kept_rank)),
      reduced_shape(std::span<std::int64_t const>(reduced.data(), reduced_rank));
  std::int64_t const count = reduced_shape.size();
  context.parallel_for(
      kept_shape.size(), std::max<std::int64_t>(1, 2048 / std::max<std::int64_t>(count, 1)),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          std::int64_t const base = offset_of(kept_shape, kept_strides, i);
          if (is_floating(dtype)) {
            double result = maximum ? -std::numeric_limits<double>::infinity() : 0;
            for (std::int64_t k = 0; k < count; ++k) {
              double const value = number_at(x.dtype, from, base + offset_of(reduced_shape, reduced_strides, k));
              result = !maximum ? result + value : value > result || value != value ? value : result;
            }
            store_number(dtype, to, i, result);
          } else {
            std::int64_t result = maximum ? lowest_integer(x.dtype) : 0;
            for (std::int64_t k = 0; k < count; ++k) {
              std::int64_t const value = integer_at(x.dtype, from, base + offset_of(reduced_shape, reduced_strides, k));
              if (!maximum)
                result = added(result, value);
              else if (x.dtype == DType::uint64 ? static_cast<std::uint64_t>(value) > static_cast<std::uint64_t>(result)
                                                : value > result)
                result = value;
            }
            store_integer(dtype, to, i, result);
          }
        }
      });
}

}  // namespace tutti::graph::generic
