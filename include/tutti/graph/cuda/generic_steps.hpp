// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The twin of tutti/graph/generic_steps.hpp on a device: steps that have no kernel of their own, a thread an element,
/// with the same results, bit for bit. Correct before fast: types are told apart at every access. The kernels are in
/// generic_kernels.hpp and generic_gather.hpp.

#include <tutti/graph/cuda/generic_gather.hpp>
#include <tutti/graph/cuda/generic_kernels.hpp>
#include <tutti/graph/cuda/generic_threads.hpp>
#include <tutti/graph/steps.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::graph::cuda {
namespace generic {

inline void fill(Context& context, DType dtype, std::byte* data, std::int64_t count, double value) {
  detail::for_each(context, count, detail::fill_numbers<>, detail::FillNumbers{data, count, dtype, value});
}

inline void iota(Context& context, Ref const& y, std::byte* data, int axis) {
  detail::for_each(context, y.shape.size(), detail::count_up<>,
                   detail::Iota{data, y.shape.size(), y.shape.row_major_strides()[static_cast<std::size_t>(axis)],
                                y.shape[axis], y.dtype});
}

/// y may be x.
inline void cumsum(Context& context, Ref const& x, std::byte const* from, std::byte* to, int axis, bool reversed) {
  if (x.shape.size() == 0) return;
  std::int64_t const extent = x.shape[axis], inner = x.shape.row_major_strides()[static_cast<std::size_t>(axis)];
  std::int64_t const columns = x.shape.size() / extent;
  detail::for_each(context, columns, detail::cumsum_columns<>,
                   detail::Cumsum{from, to, columns, extent, inner, x.dtype, reversed});
}

/// Seed, step and stream are read on the device, when the kernel runs.
inline void random_bits(Context& context, std::byte* data, std::int64_t count, std::uint64_t const* seed,
                        std::uint64_t const* step, std::uint64_t const* stream, std::uint64_t const* first) {
  if (count == 0) return;
  detail::for_each(context, (count + 6) / 4, detail::draw_bits<>,
                   detail::RandomBits{reinterpret_cast<std::uint32_t*>(data), count, seed, step, stream, first});
}

/// An index outside the table is reported in the context's error word; its row becomes zeros.
inline void gather(Context& context, Ref const& table, std::byte const* from, Ref const& indices,
                   std::byte const* index, std::byte* to) {
  std::int64_t const rows = table.shape[0], row = rows == 0 ? 0 : table.bytes() / rows, count = indices.shape.size();
  detail::for_each(context, count * row, detail::gather_rows<>,
                   detail::Gather{from, to, index, rows, row, count, indices.dtype, context.error_word()});
}

/// An index outside the table is reported in the context's error word; its row is left out.
inline void scatter_add(Context& context, Ref const& base, Ref const& indices, std::byte const* index,
                        std::byte const* updates, std::byte* to) {
  std::int64_t const rows = base.shape[0], row = rows == 0 ? 0 : base.shape.size() / rows;
  detail::for_each(context, row, detail::scatter_columns<>,
                   detail::ScatterAdd{to, updates, index, rows, row, indices.shape.size(), base.dtype, indices.dtype,
                                      context.error_word()});
}

/// Which box of what, from starts in device memory, clamped so that it fits: `starts[first + axis]`.
struct DynamicBox {
  Ref const& whole;
  Ref const& box;
  List<Ref> const& starts;
  std::size_t first;
};
/// From the whole to the box, or into it.
inline void dynamic_copy(Context& context, DynamicBox const& of, List<std::byte*> const& operands, std::byte* whole,
                         std::byte* box, bool into_whole) {
  detail::DynamicCopy args{detail::Walk(of.box.shape), whole, box, of.box.shape.size(),
                           static_cast<std::int64_t>(size_of(of.box.dtype)), {}, {}, {}, into_whole};
  args.walk.array(0, of.whole.strides);
  args.walk.array(1, of.box.strides);
  for (int axis = 0; axis < of.box.shape.rank(); ++axis) {
    std::size_t const i = of.first + static_cast<std::size_t>(axis);
    args.slack[axis] = of.whole.shape[axis] - of.box.shape[axis];
    args.starts[axis] = operands[i];
    args.start_dtypes[axis] = of.starts[i].dtype;
  }
  detail::for_each(context, args.count, detail::copy_dynamic<>, args);
}

/// Exact integer arithmetic modulo 2^64. Errors: unavailable (a function that integers do not have).
inline void integer_elementwise(Context& context, kernel::Elementwise const& chain, DType registers) {
  require_integer_functions(chain.instructions);
  detail::IntegerChain args{chain.shape.size(), {}, chain.shape.rank(), static_cast<int>(chain.inputs.size()),
                            static_cast<int>(chain.instructions.size()), static_cast<int>(chain.outputs.size()),
                            {}, {}, {}};
  for (int axis = 0; axis < args.rank; ++axis) args.extents[axis] = chain.shape[axis];
  for (std::size_t k = 0; k < chain.inputs.size(); ++k) {
    args.input[k].data = chain.inputs[k].data;
    args.input[k].dtype = chain.inputs[k].dtype;
    for (int axis = 0; axis < args.rank; ++axis)
      args.input[k].strides[axis] = chain.inputs[k].strides[static_cast<std::size_t>(axis)];
  }
  for (std::size_t k = 0; k < chain.instructions.size(); ++k) {
    kernel::ElementwiseInstruction const& in = chain.instructions[k];
    bool const constant = in.op == Op::constant;
    args.instruction[k] = {constant ? as_integer(registers, in.value) : 0, in.op, in.a, in.b, in.c};
  }
  for (std::size_t k = 0; k < chain.outputs.size(); ++k)
    args.output[k] = {chain.outputs[k].data, chain.outputs[k].dtype, chain.outputs[k].source};
  detail::for_each(context, args.count,
                   registers == DType::uint64 ? detail::integer_chain<std::uint64_t>
                                              : detail::integer_chain<std::int64_t>, args);
}

/// c = alpha a b in double. a (Z..., M, K), b (Z..., K, N), c (Z..., M, N) contiguous.
inline void product(Context& context, Ref const& a, std::byte const* x, Ref const& b, std::byte const* y,
                    Ref const& c, std::byte* z, double alpha) {
  int const batch = c.shape.rank() - 2;
  auto const row = static_cast<std::size_t>(batch), column = row + 1;
  detail::Walk walk(c.shape);
  walk.rank = batch;
  walk.array(0, a.strides);
  walk.array(1, b.strides);
  detail::Product const args{walk, x, y, z, c.shape[batch], c.shape[batch + 1], a.shape[batch + 1], c.shape.size(),
                             a.strides[row], a.strides[column], b.strides[row], b.strides[column],
                             a.dtype, b.dtype, c.dtype, alpha};
  detail::for_each(context, args.count, detail::multiply<>, args);
}

/// Sum or maximum over `axes`, in the order of the CPU's; modulo 2^bits for integers.
inline void reduce(Context& context, Ref const& x, std::byte const* from, std::uint32_t axes, bool maximum,
                   DType dtype, std::byte* to) {
  detail::Reduction args{detail::Walk(Shape{}), detail::Walk(Shape{}), from, to, 1, 1, 0, x.dtype, dtype, maximum};
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    bool const reduced = (axes >> axis & 1u) != 0;
    detail::Walk& walk = reduced ? args.reduced : args.kept;
    walk.extents[walk.rank] = x.shape[axis];
    walk.strides[0][walk.rank++] = x.strides[static_cast<std::size_t>(axis)];
    (reduced ? args.count : args.outputs) *= x.shape[axis];
  }
  args.lowest = lowest_integer(x.dtype);
  detail::for_each(context, args.outputs, detail::reduce_each<>, args);
}

}  // namespace generic

}  // namespace tutti::graph::cuda
