// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// StableHLO's operations on shapes, its products, and what it addresses by boxes, as those of graphs.

#include <tutti/graph/stablehlo/import_functions.hpp>

namespace tutti::graph::stablehlo::imported {

inline Var concatenated(Scope& scope, List<Var> const& parts, std::int64_t axis) {
  List<Id> ids;
  for (Var const part : parts) ids.push_back(scope.builder().adopt(part));
  return graph::detail::emit(scope.builder(), draft(Op::concatenate, std::move(ids), {axis}), Where::current());
}

inline Var sliced(Scope& scope, Items const& in) {
  return graph::slice(scope.in(in, 0), integers(scope, "start_indices"), integers(scope, "limit_indices"),
                      integers(scope, "strides"));
}

/// Negative padding removes. Where the filling is no constant, it is chosen by a mask.
inline Var padded(Scope& scope, Items const& in) {
  Var x = scope.in(in, 0);
  List<std::int64_t> low = integers(scope, "low", "edge_padding_low"),
                     high = integers(scope, "high", "edge_padding_high"),
                     interior = integers(scope, "interior", "interior_padding");
  auto const rank = static_cast<std::size_t>(x.rank());
  if (low.size() != rank || high.size() != rank || interior.size() != rank)
    scope.refuse("needs one number for each axis", ErrorKind::format);
  auto const fill = in.size() > 1 ? in[1].constant() : std::nullopt;
  auto const negative = [](List<std::int64_t> const& of) {
    for (std::int64_t const n : of)
      if (n < 0) return true;
    return false;
  };
  auto const pad_all = [&](Var of, double with) {
    List<std::int64_t> first(rank, 0), last(rank, 0), starts, limits;
    for (std::size_t i = 0; i < rank; ++i) {
      first[i] = low[i] > 0 ? low[i] : 0;
      last[i] = high[i] > 0 ? high[i] : 0;
    }
    Var y = graph::pad(of, first, last, interior, with);
    if (!negative(low) && !negative(high)) return y;
    for (std::size_t i = 0; i < rank; ++i) {
      std::int64_t const extent = y.shape()[static_cast<int>(i)];
      starts.push_back(low[i] < 0 ? -low[i] : 0);
      limits.push_back(high[i] < 0 ? extent + high[i] : extent);
    }
    return graph::slice(y, starts, limits);
  };
  if (fill) return pad_all(x, *fill);
  Var const inside = pad_all(constant(scope.builder(), 1, x.shape(), DType::boolean), 0);
  return select(inside, pad_all(x, 0), scope.in(in, 1));
}

inline Var reversed(Scope& scope, Items const& in) {
  Var x = scope.in(in, 0);
  for (std::int64_t const axis : integers(scope, "dims", "dimensions")) {
    if (axis < 0 || axis >= x.rank()) scope.refuse("names an axis that is not there", ErrorKind::format);
    std::int64_t const extent = x.shape()[static_cast<int>(axis)];
    if (extent < 2) continue;
    // Rows are found by their indices, along the first axis.
    List<std::int64_t> order = graph::detail::ascending(0, x.rank());
    std::swap(order[0], order[static_cast<std::size_t>(axis)]);
    Var const indices = Operand(static_cast<double>(extent - 1)) - Operand(iota(scope.builder(), {extent}, 0));
    x = graph::transpose(graph::gather(graph::transpose(x, order), indices), order);
  }
  return x;
}

/// The numbers of type float32 that are rounded to bfloat16 here, before that; nothing where none are.
inline std::optional<Var> before_rounding(Var x) {
  Graph const& graph = x.builder->graph();
  if (graph.op(x.id) != Op::convert || x.dtype() != DType::float32) return std::nullopt;
  Id const narrow = graph.operand(x.id, 0);
  if (graph.dtype(narrow) != DType::bfloat16) return std::nullopt;
  bool const rounds = graph.op(narrow) == Op::convert && graph.dtype(graph.operand(narrow, 0)) == DType::float32;
  return rounds ? Var{x.builder, graph.operand(narrow, 0)} : x;
}

/// Operands of another type than the result are converted: products of narrow ones are exact in it. Such products are
/// those that round their operands.
inline Var product(Scope& scope, Items const& in, DType dtype) {
  text::Operation const& op = scope.operation();
  List<std::int64_t> batch_a, batch_b, contract_a, contract_b;
  auto const pair = [&](std::string_view key, List<std::int64_t>& left, List<std::int64_t>& right) {
    if (auto const found = find_integers(op, key)) left = *found;
    if (auto const found = find_integers(op, concat(key, ".right"))) right = *found;
  };
  Var a = scope.in(in, 0), b = scope.in(in, 1);
  if (op.name == "stablehlo.dot") {
    contract_a = {a.rank() - 1};
    contract_b = {0};
  } else if (op.find("dot_dimension_numbers") != nullptr) {
    std::string_view const key = "dot_dimension_numbers";
    batch_a = field(scope, key, "lhs_batching_dimensions");
    batch_b = field(scope, key, "rhs_batching_dimensions");
    contract_a = field(scope, key, "lhs_contracting_dimensions");
    contract_b = field(scope, key, "rhs_contracting_dimensions");
  } else {
    pair("batching_dims", batch_a, batch_b);
    pair("contracting_dims", contract_a, contract_b);
  }
  if (!is_floating(dtype) || !is_floating(a.dtype()) || !is_floating(b.dtype()))
    scope.refuse("multiplies integers, of which graphs have no products. Convert them to float32");
  if (batch_a.size() != batch_b.size() || contract_a.size() != contract_b.size())
    scope.refuse("needs as many axes of both operands", ErrorKind::format);
  a = graph::convert(a, dtype);
  b = graph::convert(b, dtype);
  auto const wide_a = before_rounding(a), wide_b = before_rounding(b);
  bool const narrow = wide_a && wide_b;
  return graph::detail::dot_general_of(narrow ? DType::bfloat16 : DType::float32, narrow ? *wide_a : a,
                                       narrow ? *wide_b : b, contract_a, contract_b, batch_a, batch_b);
}

inline Var reduced_precision(Scope& scope, Items const& in) {
  text::Operation const& op = scope.operation();
  std::int64_t exponent = 0, mantissa = 0;
  if (auto const* format = op.find("format")) {
    exponent = format->string == "e8m7" ? 8 : format->string == "e5m10" ? 5 : 0;
    mantissa = format->string == "e8m7" ? 7 : 10;
  } else {
    exponent = integer(scope, "exponent_bits");
    mantissa = integer(scope, "mantissa_bits");
  }
  Var const x = scope.in(in, 0);
  if (exponent == 8 && mantissa == 7) return graph::convert(graph::convert(x, DType::bfloat16), x.dtype());
  if (exponent == 5 && mantissa == 10) return graph::convert(graph::convert(x, DType::float16), x.dtype());
  scope.refuse("rounds to a format other than bfloat16 and float16");
}

/// Windows that grow along one axis, from its beginning or to its end: what JAX makes of cumsum. `adds`: by addition.
inline Var window_sum(Scope& scope, Items const& in, bool adds) {
  Var const x = scope.in(in, 0);
  auto const rank = static_cast<std::size_t>(x.rank());
  auto const of = [&](std::string_view key, std::int64_t usual) {
    auto const found = find_integers(scope.operation(), key);
    return found ? *found : List<std::int64_t>(rank, usual);
  };
  auto const sizes = of("window_dimensions", 1);
  List<std::int64_t> padding = of("padding", 0);
  if (auto const* said = scope.operation().find("padding"); said == nullptr || padding.size() == 1)
    padding.assign(2 * rank, padding.empty() ? 0 : padding[0]);
  bool fits = adds && in.size() == 2 && in[1].constant() == 0.0 && sizes.size() == rank && padding.size() == 2 * rank;
  for (std::string_view const key : {"window_strides", "base_dilations", "window_dilations"})
    for (std::int64_t const n : of(key, 1)) fits = fits && n == 1;
  int axis = -1;
  bool backwards = false;
  for (std::size_t i = 0; fits && i < rank; ++i) {
    std::int64_t const extent = x.shape()[static_cast<int>(i)], low = padding[2 * i], high = padding[2 * i + 1];
    if (sizes[i] == 1 && low == 0 && high == 0) continue;
    backwards = low == 0;
    fits = axis < 0 && sizes[i] == extent && low + high == extent - 1 && (low == 0 || high == 0);
    axis = static_cast<int>(i);
  }
  if (!fits) scope.refuse("is supported for sums of all elements up to each (cumsum) alone");
  return axis < 0 ? x : cumsum(x, axis, backwards);
}

/// Whether it is i in iteration i of the loop.
inline bool is_ordinal(Item const& item, Loop const& loop) {
  if (item.loop != loop.number) return false;
  for (std::size_t i = 0; i < item.numbers->size(); ++i)
    if ((*item.numbers)[i] != static_cast<double>(i)) return false;
  return true;
}
/// The box that a loop's counter numbers, of what the loop does not change: its slice of this iteration.
inline std::optional<Var> loop_slice(Scope& scope, Items const& in, Shape const& sizes) {
  if (scope.loops().empty() || in.size() < 2) return std::nullopt;
  Loop& loop = *scope.loops().back();
  Item const &whole = in[0], &start = in[1];
  if (whole.whole_of != loop.number || whole.var.builder == nullptr || !is_ordinal(start, loop)) return std::nullopt;
  if (whole.type.shape[0] != loop.length || sizes[0] != 1) return std::nullopt;
  for (int axis = 1; axis < sizes.rank(); ++axis)
    if (sizes[axis] != whole.type.shape[axis]) return std::nullopt;
  for (auto const& [place, var] : loop.slices)
    if (place == whole.place) return graph::reshape(var, sizes);
  loop.slices.push_back({whole.place, loop.scan->slice(whole.var, concat("slice.", whole.place))});
  return graph::reshape(loop.slices.back().second, sizes);
}
inline Var dynamic_slice(Scope& scope, Items const& in) {
  auto const sizes = integers(scope, "sizes", "slice_sizes");
  if (in.empty() || static_cast<int>(sizes.size()) != in[0].type.shape.rank() || sizes.size() + 1 != in.size())
    scope.refuse("needs a start and a size for each axis", ErrorKind::format);
  if (auto const slice = loop_slice(scope, in, Shape(sizes))) return *slice;
  Var const x = scope.in(in, 0);
  List<std::int64_t> starts, limits;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto const start = in[i + 1].constant();
    std::int64_t const room = x.shape()[static_cast<int>(i)] - sizes[i];
    if ((!start && room != 0) || room < 0 || sizes[i] < 0) break;
    starts.push_back(start ? std::min(std::max(static_cast<std::int64_t>(*start), std::int64_t{0}), room) : 0);
    limits.push_back(starts.back() + sizes[i]);
  }
  if (starts.size() == sizes.size()) return graph::slice(x, starts, limits);
  List<Var> at;
  for (std::size_t i = 1; i < in.size(); ++i) at.push_back(scope.in(in, i));
  return graph::dynamic_slice(x, at, Shape(sizes));
}
/// Of what a loop fills, the slice of this iteration stays apart; else the updated tensor.
inline Item dynamic_update_slice(Scope& scope, Items const& in, text::TensorType const& type) {
  if (in.size() < 2 || static_cast<int>(in.size()) != 2 + in[0].type.shape.rank())
    scope.refuse("needs a start for each axis", ErrorKind::format);
  Item result;
  result.type = type;
  if (Item const& hole = in[0]; hole.hole_of != 0) {
    Loop const& loop = *scope.loops().back();
    Shape const &whole = hole.type.shape, &part = in[1].type.shape;
    if (hole.hole_of == loop.number && in.size() > 2 && is_ordinal(in[2], loop) && part[0] == 1 &&
        without_first(part) == without_first(whole)) {
      result.var = graph::reshape(scope.in(in, 1), without_first(part));
      result.filled_of = loop.number;
      result.place = hole.place;
      return result;
    }
  }
  List<Var> at;
  for (std::size_t i = 2; i < in.size(); ++i) at.push_back(scope.in(in, i));
  Var const x = scope.in(in, 0);
  result.var = x.rank() == 0 ? scope.in(in, 1) : graph::dynamic_update_slice(x, scope.in(in, 1), at);
  return result;
}

}  // namespace tutti::graph::stablehlo::imported
