// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Constants, operations on shapes, reductions, products, gathers and scatters as StableHLO.
///
/// Where StableHLO leaves something open, or differs, its form is such that the result is the graph's:
///   reductions of 16-bit numbers  sum in float32, and round once
///   products        of operands rounded to bfloat16: bfloat16 operands, float32 sums, or as
///                   StablehloOptions::narrow_products says. All others ask for the HIGHEST precision, so that a device
///                   does not round operands by itself
///   starts          of dynamic slices become int32 or int64, then are clamped, as in graphs
///   indices         outside of the table: the executor refuses them, StableHLO clamps those of a gather and leaves out
///                   rows of a scatter. A module cannot refuse; whoever calls it gives indices that exist

#include <tutti/graph/stablehlo/call.hpp>

#include <string>
#include <utility>

namespace tutti::graph::stablehlo {

inline Value scalar(Call const& e, DType dtype, double value) { return e.out.number(dtype, {}, value); }

/// An integer of a type that every tool takes as an index.
inline Value index(Call const& e, Value const& x) {
  if (is_floating(x.dtype)) return e.saturated(size_of(x.dtype) == 2 ? e.convert(x, DType::float32) : x, DType::int64);
  if (x.dtype == DType::uint64) {
    Value const largest = e.out.constant(DType::uint64, x.shape, "9223372036854775807");
    return e.convert(e.map("minimum", x, largest), DType::int64);
  }
  bool const narrow = size_of(x.dtype) < 4 || x.dtype == DType::int32;
  return e.convert(x, narrow ? DType::int32 : DType::int64);
}

inline Value iota(Call const& e) {
  if (e.shape().rank() == 0) return scalar(e, e.dtype(), 0);
  bool const truth = e.dtype() == DType::boolean;
  Value const x = e.out.op("iota", {}, truth ? DType::int64 : e.dtype(), e.shape(),
                           concat("iota_dimension = ", e.integer(), " : i64"));
  return truth ? e.compare("NE", x, e.out.number(x, 0)) : x;
}

/// Starts from operand `first` on, of one type. Wide ones are clamped here, to what int32 holds: not every tool does so
/// after it has narrowed them.
inline void append_starts(Call const& e, int first, Shape const& box, Values& operands) {
  std::int64_t const most = std::int64_t{1} << 31;
  Shape const& whole = e.in().shape;
  bool const small = whole.size() < most;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    Value start = index(e, e.in(first + axis));
    if (small && start.dtype == DType::int64) {
      Value const low = e.out.number(start, 0),
                  high = e.out.number(start, static_cast<double>(whole[axis] - box[axis]));
      start = e.map("minimum", e.map("maximum", start, low), high);
    }
    operands.push_back(e.convert(start, small ? DType::int32 : DType::int64));
  }
}

inline Value slice(Call const& e) {
  auto const part = [&](int which) {
    auto const rank = static_cast<std::size_t>(e.shape().rank());
    return array_text(e.graph.integers(e.id).subspan(static_cast<std::size_t>(which) * rank, rank));
  };
  if (e.graph.op(e.id) == Op::slice)
    return e.out.op("slice", {e.in()}, e.dtype(), e.shape(),
                    concat("start_indices = ", part(0), ", limit_indices = ", part(1), ", strides = ", part(2)));
  return e.out.op(
      "pad", {e.in(), scalar(e, e.dtype(), e.real())}, e.dtype(), e.shape(),
      concat("edge_padding_low = ", part(0), ", edge_padding_high = ", part(1), ", interior_padding = ", part(2)));
}

/// Whether a value is a part of another one, or a view of it.
inline bool is_part(Graph const& graph, Id part, Id whole) {
  for (;; part = graph.operand(part, 0)) {
    if (part == whole) return true;
    Op const op = graph.op(part);
    if (op != Op::slice && op != Op::dynamic_slice && op != Op::reshape && op != Op::transpose &&
        op != Op::stop_gradient)
      return false;
  }
}

inline Value dynamic_slice(Call const& e) {
  bool const update = e.graph.op(e.id) == Op::dynamic_update_slice;
  if (e.shape().rank() == 0) return e.in(update ? 1 : 0);
  Values operands{e.in()};
  // IREE 3.13 reads such an update after it has written to where that lies.
  if (update && is_part(e.graph, e.graph.operand(e.id, 1), e.graph.operand(e.id, 0)))
    operands.push_back(e.map("optimization_barrier", e.in(1)));
  else if (update) operands.push_back(e.in(1));
  append_starts(e, update ? 2 : 1, update ? e.in(1).shape : e.shape(), operands);
  return e.out.op(update ? "dynamic_update_slice" : "dynamic_slice", operands, e.dtype(), e.shape(),
                  update ? std::string() : concat("slice_sizes = ", array_text({e.shape().begin(), e.shape().end()})));
}

inline Value reduce(Call const& e) {
  if (e.graph.integers(e.id).empty()) return e.in();
  bool const sums = e.graph.op(e.id) == Op::reduce_sum;
  DType const dtype = e.dtype(), wide = sums && size_of(dtype) == 2 && is_floating(dtype) ? DType::float32 : dtype;
  double first = 0;
  if (!sums && is_floating(dtype)) first = -std::numeric_limits<double>::infinity();
  else if (!sums && has_sign(dtype)) first = -std::ldexp(1.0, 8 * static_cast<int>(size_of(dtype)) - 1);
  Value const x = e.convert(e.in(), wide), start = scalar(e, wide, first);
  std::string const folding = e.out.folding(sums ? "add" : "maximum", wide);
  Value const sum = e.out.op("reduce", {x, start}, wide, e.shape(),
                             concat("dimensions = ", array_text(e.graph.integers(e.id))), folding);
  return e.convert(sum, dtype);
}

inline Value dot_general(Call const& e) {
  DType const product = product_type(e.graph, e.id), dtype = e.dtype();
  if (e.in(0).shape.size() == 0 || e.in(1).shape.size() == 0) return e.out.number(dtype, e.shape(), 0);
  bool const rounds = product != DType::float32, half = size_of(dtype) == 2;
  DotShape const d = dot_shape(e.graph, e.id);
  // IREE 3.13 multiplies in bfloat16 where no axis is free.
  bool const narrow = e.options.narrow_products && e.shape().rank() > static_cast<int>(d.batch_a.size());
  auto const factor = [&](int i) {
    if (!rounds) return e.in(i);
    if (narrow) return e.convert(e.in(i), product);
    return e.out.op("reduce_precision", {e.in(i)}, dtype, e.in(i).shape,
                    "exponent_bits = 8 : i32, mantissa_bits = 7 : i32");
  };
  std::string_view const precision = (rounds && narrow) || half ? "DEFAULT" : "HIGHEST";
  Value const sum = e.out.op(
      "dot_general", {factor(0), factor(1)}, half ? DType::float32 : dtype, e.shape(),
      concat("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [", list_text(d.batch_a),
             "], rhs_batching_dimensions = [", list_text(d.batch_b), "], lhs_contracting_dimensions = [",
             list_text(d.contract_a), "], rhs_contracting_dimensions = [", list_text(d.contract_b),
             "]>, precision_config = [#stablehlo<precision ", precision, ">, #stablehlo<precision ", precision, ">]"));
  return e.convert(sum, dtype);
}

/// 0, 1, ... of `count` numbers, from `first` on.
inline List<std::int64_t> counted(std::int64_t first, int count) {
  List<std::int64_t> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}
/// Indices of any shape as (N, 1): rows of tables are found, and added to, in the one form that all tools take.
inline Value index_column(Call const& e) { return e.out.reshape(index(e, e.in(1)), Shape{e.in(1).shape.size(), 1}); }
/// Rows of a table (R, ...), one for each index.
inline Shape rows_shape(Call const& e) { return with_first(e.in(1).shape.size(), without_first(e.in().shape)); }

inline Value gather(Call const& e) {
  Shape const table = e.in().shape, row = table.with(0, 1);
  if (table[0] == 0 || e.shape().size() == 0) return e.out.number(e.dtype(), e.shape(), 0);  // no index exists
  Value const rows =
      e.out.op("gather", {e.in(), index_column(e)}, e.dtype(), rows_shape(e),
               concat("dimension_numbers = #stablehlo.gather<offset_dims = [", list_text(counted(1, table.rank() - 1)),
                      "], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = ",
                      array_text({row.begin(), row.end()}), ", indices_are_sorted = false"));
  return e.out.reshape(rows, e.shape());
}

inline Value scatter_add(Call const& e) {
  if (e.in(1).shape.size() == 0 || e.shape().size() == 0) return e.in();
  Value const indices = index_column(e), rows = e.out.reshape(e.convert(e.in(2), e.dtype()), rows_shape(e));
  std::string const folding = e.out.folding("add", e.dtype());
  return e.out.op("scatter", {e.in(), indices, rows}, e.dtype(), e.shape(),
                  concat("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [",
                         list_text(counted(1, e.shape().rank() - 1)),
                         "], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
                         "indices_are_sorted = false, unique_indices = false"),
                  folding);
}

}  // namespace tutti::graph::stablehlo
