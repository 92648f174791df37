// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Kernels of steps that have no kernel of their own, a thread an element; generic_steps.hpp launches them. Those of
/// gathers and scatters are in generic_gather.hpp.

#include <tutti/core/dtype.hpp>
#include <tutti/graph/cuda/generic_gather.hpp>
#include <tutti/graph/cuda/generic_threads.hpp>
#include <tutti/graph/elements.hpp>
#include <tutti/kernel/cuda/chain.hpp>
#include <tutti/kernel/cuda/ptx.hpp>
#include <tutti/kernel/elementwise.hpp>
#include <tutti/tensor/random.hpp>
#include <tutti/tensor/shape.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tutti::graph::cuda {

namespace generic {

using graph::generic::added;
using graph::generic::as_integer;
using graph::generic::compute_integer;
using graph::generic::index_at;
using graph::generic::integer_at;
using graph::generic::lowest_integer;
using graph::generic::number_at;
using graph::generic::require_integer_functions;
using graph::generic::store_integer;
using graph::generic::store_number;

namespace detail {

struct FillNumbers {
  void* data;
  std::int64_t count;
  DType dtype;
  double value;
};
template <class = void>
__global__ void fill_numbers(FillNumbers const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i < args.count) store_number(args.dtype, args.data, i, args.value);
}

struct Iota {
  void* data;
  std::int64_t count, inner, extent;
  DType dtype;
};
template <class = void>
__global__ void count_up(Iota const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i < args.count) store_number(args.dtype, args.data, i, static_cast<double>(i / args.inner % args.extent));
}

struct RandomBits {
  std::uint32_t* words;
  std::int64_t count;
  std::uint64_t const *seed, *step, *stream, *first;  // first may be null: 0
};
template <class = void>
__global__ void draw_bits(RandomBits const args) {
  kernel::cuda::begin_kernel();
  std::uint64_t const first = args.first == nullptr ? 0 : *args.first;
  std::uint64_t const number = first / 4 + static_cast<std::uint64_t>(element_of_thread());
  auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  auto const four = philox4x32({low(number), low(number >> 32), low(*args.step), low(*args.stream)},
                               {low(*args.seed), low(*args.seed >> 32)});
  for (std::uint64_t k = 0; k < 4; ++k) {
    std::uint64_t const i = 4 * number + k - first;  // what is before `first` wraps, and is beyond the end
    if (i < static_cast<std::uint64_t>(args.count)) args.words[i] = four[k];
  }
}

struct Cumsum {
  std::byte const* x;
  std::byte* y;
  std::int64_t columns, extent, inner;
  DType dtype;
  bool reversed;
};
/// A column a thread, in order.
template <class = void>
__global__ void cumsum_columns(Cumsum const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const column = element_of_thread();
  if (column >= args.columns) return;
  std::int64_t const step = args.reversed ? -args.inner : args.inner;
  std::int64_t at = column / args.inner * args.extent * args.inner + column % args.inner;
  if (args.reversed) at += (args.extent - 1) * args.inner;
  double sum = 0;
  std::uint64_t whole = 0;
  for (std::int64_t k = 0; k < args.extent; ++k, at += step) {
    if (is_floating(args.dtype)) {
      sum += number_at(args.dtype, args.x, at);
      store_number(args.dtype, args.y, at, sum);
    } else {
      whole += static_cast<std::uint64_t>(integer_at(args.dtype, args.x, at));
      store_integer(args.dtype, args.y, at, static_cast<std::int64_t>(whole));
    }
  }
}

struct DynamicCopy {
  Walk walk;  ///< of the box; arrays: 0 the whole, 1 the box
  std::byte *whole, *box;
  std::int64_t count, size;
  std::int64_t slack[Shape::max_rank];  ///< largest start of each axis
  void const* starts[Shape::max_rank];
  DType start_dtypes[Shape::max_rank];
  bool into_whole;
};
template <class = void>
__global__ void copy_dynamic(__grid_constant__ DynamicCopy const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i >= args.count) return;
  std::int64_t at = args.walk.offset(0, i);
  for (int axis = 0; axis < args.walk.rank; ++axis) {
    std::int64_t const start = index_at(args.start_dtypes[axis], args.starts[axis], 0);
    std::int64_t const fitting = start < 0 ? 0 : start > args.slack[axis] ? args.slack[axis] : start;
    at += fitting * args.walk.strides[0][axis];
  }
  std::byte* const whole = args.whole + at * args.size;
  std::byte* const box = args.box + args.walk.offset(1, i) * args.size;
  for (std::int64_t byte = 0; byte < args.size; ++byte)
    (args.into_whole ? whole : box)[byte] = (args.into_whole ? box : whole)[byte];
}

struct IntegerInput {
  void const* data;
  std::int64_t strides[Shape::max_rank];
  DType dtype;
};
struct IntegerInstruction {
  std::int64_t value;
  kernel::ElementwiseOp op;
  std::int16_t a, b, c;
};
struct IntegerOutput {
  void* data;
  DType dtype;
  std::int16_t source;
};
struct IntegerChain {
  std::int64_t count, extents[Shape::max_rank];
  int rank, inputs, instructions, outputs;
  IntegerInput input[16];
  IntegerInstruction instruction[64];
  IntegerOutput output[8];
};
static_assert(sizeof(IntegerChain) <= 4096);

template <class Register>
__global__ void integer_chain(__grid_constant__ IntegerChain const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i >= args.count) return;
  Register registers[16 + 64];
  int next = 0;
  for (int k = 0; k < args.inputs; ++k) {
    std::int64_t offset = 0, position = i;
    for (int axis = args.rank - 1; axis >= 0; --axis) {
      offset += position % args.extents[axis] * args.input[k].strides[axis];
      position /= args.extents[axis];
    }
    registers[next++] = static_cast<Register>(integer_at(args.input[k].dtype, args.input[k].data, offset));
  }
  auto const value = [&](int r) { return r < 0 ? Register{0} : registers[r]; };
  for (int k = 0; k < args.instructions; ++k) {
    IntegerInstruction const& in = args.instruction[k];
    kernel::cuda::detail::with_body<ElementwiseFunctions>(in.op, [&]<class Body>() {
      registers[next] = compute_integer<Body>(in.value, value(in.a), value(in.b), value(in.c));
    });
    ++next;
  }
  for (int k = 0; k < args.outputs; ++k)
    store_integer(args.output[k].dtype, args.output[k].data, i,
                  static_cast<std::int64_t>(value(args.output[k].source)));
}

struct Product {
  Walk walk;  ///< of the batch; arrays: 0 a, 1 b
  void const *a, *b;
  void* c;
  std::int64_t rows, columns, depth, count;
  std::int64_t a_row, a_column, b_row, b_column;
  DType a_dtype, b_dtype, c_dtype;
  double alpha;
};
template <class = void>
__global__ void multiply(__grid_constant__ Product const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i >= args.count) return;
  std::int64_t const j = i % args.columns, m = i / args.columns % args.rows, batch = i / args.columns / args.rows;
  std::int64_t const from_a = args.walk.offset(0, batch) + m * args.a_row;
  std::int64_t const from_b = args.walk.offset(1, batch) + j * args.b_column;
  double sum = 0;
  for (std::int64_t k = 0; k < args.depth; ++k)
    sum += number_at(args.a_dtype, args.a, from_a + k * args.a_column) *
           number_at(args.b_dtype, args.b, from_b + k * args.b_row);
  store_number(args.c_dtype, args.c, i, args.alpha * sum);
}

struct Reduction {
  Walk kept, reduced;
  void const* x;
  void* out;
  std::int64_t outputs, count, lowest;
  DType dtype, out_dtype;
  bool maximum;
};
template <class = void>
__global__ void reduce_each(__grid_constant__ Reduction const args) {
  kernel::cuda::begin_kernel();
  std::int64_t const i = element_of_thread();
  if (i >= args.outputs) return;
  std::int64_t const base = args.kept.offset(0, i);
  if (is_floating(args.out_dtype)) {
    double result = args.maximum ? -INFINITY : 0.0;
    for (std::int64_t k = 0; k < args.count; ++k) {
      double const value = number_at(args.dtype, args.x, base + args.reduced.offset(0, k));
      result = !args.maximum ? result + value : value > result || value != value ? value : result;
    }
    return store_number(args.out_dtype, args.out, i, result);
  }
  std::int64_t result = args.maximum ? args.lowest : 0;
  for (std::int64_t k = 0; k < args.count; ++k) {
    std::int64_t const value = integer_at(args.dtype, args.x, base + args.reduced.offset(0, k));
    if (!args.maximum) result = added(result, value);
    else if (args.dtype == DType::uint64 ? static_cast<std::uint64_t>(value) > static_cast<std::uint64_t>(result)
                                         : value > result)
      result = value;
  }
  store_integer(args.out_dtype, args.out, i, result);
}

}  // namespace detail

}  // namespace generic
}  // namespace tutti::graph::cuda
