// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Tables of which each rank of the tensor axis has some rows: the embedding, and the loss of a head whose logits are
/// nowhere all together. For parallel/shard.hpp.
/// Source  Shoeybi et al. 2019 (arXiv 1909.08053), section 3

#include <tutti/graph/composites.hpp>
#include <tutti/graph/probabilities.hpp>
#include <tutti/graph/repeat.hpp>

#include <algorithm>
#include <cstdint>

namespace tutti::parallel::detail {

inline constexpr auto tensor_axis = graph::MeshAxis::tensor;

/// Integers that count rows of the whole table, as rows of this rank's part of `rows`: below 0 or beyond where another
/// rank has them.
inline graph::Var local_rows(graph::Var indices, std::int64_t rows) {
  graph::Var const place = graph::rank_number(*indices.builder, tensor_axis);
  return indices - graph::convert(place, indices.dtype()) * static_cast<double>(rows);
}
inline graph::Var over_tensor_axis(graph::Var addend) {
  return all_reduce(partial(addend, tensor_axis), tensor_axis, comm::PortOp::sum);
}

/// Rows of the table by tokens (B, T), as addends: each rank gives those that it has, and zeros.
inline graph::Var embedding_addends(graph::Var tokens, graph::Var table) {
  using namespace graph;
  std::int64_t const rows = table.shape()[0];
  Var const at = local_rows(tokens, rows);
  Var const here = greater_equal(at, 0.0) && less(at, static_cast<double>(rows));
  Var const found = embed(table, select(here, at, 0.0));
  Shape const each{tokens.shape()[0], tokens.shape()[1], 1};
  return select(broadcast_in_dim(reshape(here, each), found.shape(), {0, 1, 2}), found, 0.0);
}
inline graph::Var divided_embedding(graph::Var tokens, graph::Var table) {
  return over_tensor_axis(embedding_addends(tokens, table));
}

/// log(sum(exp(logits))) - logit of the target for every row of logits (..., R), of which each of `ranks` has the
/// columns of its R rows of the table. 0 where the target is `ignored`.
/// Requires  R < 2^24: columns are compared as float32, which is fast and holds them
inline graph::Var divided_row_losses(graph::Var logits, graph::Var targets, std::int64_t ignored, int ranks) {
  using namespace graph;
  Builder& builder = *logits.builder;
  Shape const shape = logits.shape(), rows = targets.shape();
  int const last = shape.rank() - 1;
  std::int64_t const columns = shape[last];
  DType const number = logits.dtype();
  Var const own = log_sum_exp(logits);
  Var const all = log_sum_exp(all_gather(reshape(own, with_first(1, rows)), tensor_axis, ranks), 0);
  Var const at = reshape(convert(local_rows(targets, columns), number), shape.with(last, 1));
  Var const hit = equal(broadcast_in_dim(convert(iota(builder, {columns}, 0, DType::int32), number), shape, {last}),
                        broadcast_in_dim(at, shape, graph::detail::ascending(0, last + 1)));
  Var const target = over_tensor_axis(reduce_sum(select(hit, logits, 0.0), {last}));
  return select(not_equal(targets, static_cast<double>(ignored)), all - target, 0.0);
}

/// For `vocabulary` classes, nothing for the rows (R) of this rank that are among them, and very little for others.
inline graph::Var padding_bias(graph::Builder& builder, std::int64_t rows, std::int64_t vocabulary, DType dtype) {
  using namespace graph;
  Var const first = rank_number(builder, tensor_axis) * static_cast<double>(rows);
  Var const row = iota(builder, {rows}, 0, DType::int32) + first;
  return select(less(row, static_cast<double>(vocabulary)), constant(builder, 0, {rows}, dtype), -1e30);
}

/// The mean over rows whose target is not ignored, as of cross_entropy_losses.
inline graph::Losses mean_of(graph::Var sum, graph::Var losses, graph::Var targets, std::int64_t ignored) {
  graph::Var const counted = convert(not_equal(targets, static_cast<double>(ignored)), losses.dtype());
  return {sum / maximum(sum_all(counted), 1.0), losses};
}

/// cross_entropy(linear(x, weight), targets). More than `most` logits of a rank are made some rows at a time, and again
/// for the gradient.
inline graph::Losses divided_linear_cross_entropy(graph::Var x, graph::Var weight, graph::Var targets,
                                                  List<std::int64_t> const& product, std::int64_t ignored,
                                                  std::int64_t vocabulary, int ranks,
                                                  std::int64_t most = std::int64_t{1} << 25) {
  using namespace graph;
  std::int64_t const rows = targets.shape().size(), columns = weight.shape()[0];
  bool const padded = vocabulary < columns * ranks;
  Var const bias = padded ? padding_bias(*x.builder, columns, vocabulary, x.dtype()) : Var{};
  auto const losses_of = [&](Var rows_of, Var wanted) {
    auto const here = Where::current();
    Var const logits = padded ? graph::detail::composite(Op::linear, {rows_of, weight, bias}, product, {}, here)
                              : graph::detail::composite(Op::linear, {rows_of, weight}, product, {}, here);
    return divided_row_losses(logits, wanted, ignored, ranks);
  };
  std::int64_t part = rows;
  if (rows * columns > most) part = std::max<std::int64_t>(most / columns, 1);
  while (rows % std::max<std::int64_t>(part, 1) != 0) --part;
  if (part == rows) {
    Var const losses = losses_of(x, targets);
    return mean_of(sum_all(losses), losses, targets, ignored);
  }
  Builder& builder = *x.builder;
  Scanned const done =
      scan({constant(builder, 0, {}, x.dtype())},
           {reshape(x, {rows / part, part, last(x.shape())}), reshape(targets, {rows / part, part})},
           [&](List<Var> const& carried, List<Var> const& elements) {
             Var const losses = losses_of(elements[0], elements[1]);
             return ScanStep{{carried[0] + sum_all(losses)}, {losses}};
           });
  builder.set_recompute(builder.graph().operand(done.carried[0].id, 0), Recompute::block);
  return mean_of(done.carried[0], reshape(done.outputs[0], targets.shape()), targets, ignored);
}

}  // namespace tutti::parallel::detail
