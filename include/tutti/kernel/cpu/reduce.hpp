// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sum and maximum over any axes on the CPU. The reduced positions are cut into blocks by the shape alone; the partial
/// results of the blocks are combined in order, so a single output also has work for every thread.

#include <tutti/exec/context.hpp>
#include <tutti/kernel/box.hpp>
#include <tutti/kernel/cpu/rows.hpp>
#include <tutti/kernel/elementwise.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

#define TUTTI_ISA_BODY <tutti/kernel/cpu/reduce.inl>
#include <tutti/exec/isa/foreach.inl>
#undef TUTTI_ISA_BODY

namespace tutti::kernel::cpu {

namespace detail {

inline float reduce_row_part(exec::Isa isa, bool maximum, float const* x, std::int64_t n) {
  TUTTI_DISPATCH(isa, reduce_row_of(maximum, x, n));
}
constexpr double combined(bool maximum, double a, double b) {
  if (!maximum) return a + b;
  return a > b || a != a ? a : b;
}
inline void reduce_rows_part(exec::Isa isa, bool maximum, float* to, float const* x, std::int64_t n, std::int64_t rows,
                             std::int64_t stride) {
  TUTTI_DISPATCH(isa, reduce_rows_of(maximum, to, x, n, rows, stride));
}

/// Positions of some of a box's axes in row-major order, and where each lies.
struct Positions {
  int rank = 0;
  Extents extents{}, strides{};

  Positions(Box<1> const& box, bool reduced) {
    for (int axis = 0; axis < box.rank; ++axis) {
      if (box.marked(axis) != reduced) continue;
      extents[static_cast<std::size_t>(rank)] = box.extent(axis);
      strides[static_cast<std::size_t>(rank++)] = box.stride(0, axis);
    }
  }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= extents[static_cast<std::size_t>(axis)];
    return product;
  }
  std::int64_t inner() const { return rank == 0 ? 1 : extents[static_cast<std::size_t>(rank - 1)]; }
  std::int64_t inner_stride() const { return rank == 0 ? 0 : strides[static_cast<std::size_t>(rank - 1)]; }
  std::int64_t offset(std::int64_t position) const {
    std::int64_t result = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      std::int64_t const extent = extents[static_cast<std::size_t>(axis)];
      result += position % extent * strides[static_cast<std::size_t>(axis)];
      position /= extent;
    }
    return result;
  }
};

class Reduction {
 public:
  Reduction(Reduce const& args, exec::Isa isa)
      : isa_(isa), maximum_(args.maximum), x_(args.x), box_(boxed(args)), kept_(box_, false), reduced_(box_, true) {}

  Positions const& kept() const { return kept_; }
  Positions const& reduced() const { return reduced_; }

  /// to[output - first] for outputs [first, last) over reduced positions [begin, end).
  void run(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end, float* to) const {
    std::fill(to, to + (last - first), maximum_ ? -std::numeric_limits<float>::infinity() : 0.0f);
    if (kept_.rank > 0 && kept_.inner_stride() == 1) return run_across(first, last, begin, end, to);
    for (std::int64_t output = first; output < last; ++output) {
      float const* const x = x_ + kept_.offset(output);
      double value = double{to[output - first]};
      for (std::int64_t position = begin; position < end;) {
        std::int64_t const left = reduced_.inner() - position % reduced_.inner();
        std::int64_t const length = std::min({left, end - position, run_length});
        float const* const row = x + reduced_.offset(position);
        if (reduced_.inner_stride() == 1)
          value = combined(maximum_, value, double{reduce_row_part(isa_, maximum_, row, length)});
        else
          for (std::int64_t i = 0; i < length; ++i)
            value = combined(maximum_, value, double{row[i * reduced_.inner_stride()]});
        position += length;
      }
      to[output - first] = static_cast<float>(value);
    }
  }

 private:
  static constexpr std::int64_t run_length = 4096;  ///< summed in float; runs are summed in double
  static Box<1> boxed(Reduce const& args) {
    Box<1> box(args.shape, 1);
    box.strides[0] = args.strides;
    box.marks = args.axes;
    box.merge();
    return box;
  }
  /// Kept elements lie side by side: whole rows of them are combined.
  void run_across(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end, float* to) const {
    for (std::int64_t output = first; output < last;) {
      std::int64_t const width = std::min(kept_.inner() - output % kept_.inner(), last - output);
      float const* const x = x_ + kept_.offset(output);
      for (std::int64_t position = begin; position < end;) {
        std::int64_t const length = std::min(reduced_.inner() - position % reduced_.inner(), end - position);
        reduce_rows_part(isa_, maximum_, to + (output - first), x + reduced_.offset(position), width, length,
                         reduced_.inner_stride());
        position += length;
      }
      output += width;
    }
  }

  exec::Isa isa_;
  bool maximum_;
  float const* x_;
  Box<1> box_;
  Positions kept_, reduced_;
};

}  // namespace detail

/// See kernel::Reduce. The sum of nothing is 0. A NaN makes the maximum NaN.
inline void reduce(exec::Context& context, Reduce const& args) {
  constexpr std::int64_t room = 4096;
  std::int64_t outputs = 1, count = 1;
  for (int axis = 0; axis < args.shape.rank(); ++axis) ((args.axes >> axis) & 1u ? count : outputs) *= args.shape[axis];
  if (outputs == 0) return;
  if (count == 0) {
    std::fill(args.out, args.out + outputs, args.maximum ? -std::numeric_limits<float>::infinity() : 0.0f);
    return;
  }
  detail::Reduction const reduction(args, context.isa());
  std::int64_t const blocks =
      outputs >= 512 ? 1 : std::clamp<std::int64_t>(std::min(room / outputs, outputs * count / 16384), 1, count);
  std::int64_t const block = (count + blocks - 1) / blocks;
  if (blocks == 1) {
    std::int64_t const grain = std::max<std::int64_t>(16, 8192 / count / 16 * 16);
    context.parallel_for(outputs, grain, [&](std::int64_t first, std::int64_t last) {
      reduction.run(first, last, 0, count, args.out + first);
    });
    return;
  }
  float partial[room];
  context.parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t index = first; index < last; ++index)
      reduction.run(0, outputs, std::min(index * block, count), std::min((index + 1) * block, count),
                    partial + index * outputs);
  });
  for (std::int64_t output = 0; output < outputs; ++output) {
    double value = double{partial[output]};
    for (std::int64_t index = 1; index < blocks; ++index)
      value = detail::combined(args.maximum, value, double{partial[index * outputs + output]});
    args.out[output] = static_cast<float>(value);
  }
}

}  // namespace tutti::kernel::cpu
