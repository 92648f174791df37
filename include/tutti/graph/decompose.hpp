// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Composites written out in primitives: what a backend without their kernels runs, what an exporter prints, and what
/// can be differentiated any number of times.

#include <tutti/graph/canonical.hpp>
#include <tutti/graph/composites.hpp>
#include <tutti/graph/decompose_attention.hpp>
#include <tutti/graph/decompose_parts.hpp>
#include <tutti/kernel/dropout.hpp>

namespace tutti::graph {

namespace detail {

constexpr Var silu_slope(Var x) {
  Var const s = logistic(x);
  return s * (x * (1.0 - s) + 1.0);
}

constexpr List<Var> written_layer_norm(Parts const& p) {
  Var const x = p.in(0), mean = last_mean(x), d = x - mean, rstd = rsqrt(last_mean(d * d) + p.real());
  return {d * rstd * p.in(1) + p.in(2), reshape(mean, leading(x.shape())), reshape(rstd, leading(x.shape()))};
}
constexpr List<Var> written_layer_norm_gradient(Parts const& p) {
  Var const g = p.in(0), x = p.in(1);
  Shape const kept = x.shape().with(x.rank() - 1, 1);
  Var const rstd = reshape(p.in(4), kept), xh = (x - reshape(p.in(3), kept)) * rstd, h = g * p.in(2);
  return {rstd * (h - last_mean(h) - xh * last_mean(h * xh)), leading_sum(g * xh), leading_sum(g)};
}

constexpr List<Var> written_rms_norm(Parts const& p) {
  Var const x = p.in(0), rstd = rsqrt(last_mean(x * x) + p.real());
  return {x * rstd * p.in(1), reshape(rstd, leading(x.shape()))};
}
constexpr List<Var> written_rms_norm_gradient(Parts const& p) {
  Var const g = p.in(0), x = p.in(1);
  Var const rstd = reshape(p.in(3), x.shape().with(x.rank() - 1, 1)), xh = x * rstd, h = g * p.in(2);
  return {rstd * (h - xh * last_mean(h * xh)), leading_sum(g * xh)};
}
constexpr List<Var> written_rotary(Parts const& p) {
  Shape const table = p.in(1).shape(), each_head{table[0], 1, table[1]};
  Var const cosine = reshape(p.in(1), each_head), sine = reshape(p.integer(1) != 0 ? -p.in(2) : p.in(2), each_head);
  RotaryPairs const x(p.in(0), p.integer(0), table[1]);
  return {x.joined(x.a * cosine - x.b * sine, x.a * sine + x.b * cosine)};
}

constexpr List<Var> written_embedding(Parts const& p) {
  Var const rows = gather(p.in(1), p.in(0));
  if (p.count() == 2) return {rows};
  return {rows + slice(p.in(2), {0, 0}, {rows.shape()[1], rows.shape()[2]})};
}
constexpr List<Var> written_embedding_gradient(Parts const& p) {
  Var const g = p.in(1);
  Var const base = p.count() == 3 ? p.in(2) : constant(p.builder, 0, p.graph.shape(p.id), g.dtype());
  Var const table = scatter_add(base, p.in(0), g);
  if (p.integer(1) == 0) return {table, constant(p.builder, 0, p.graph.type(p.id, 1).shape, g.dtype())};
  return {table, pad(reduce_sum(g, {0}), {0, 0}, {p.integer(1) - g.shape()[1], 0})};
}

/// Mean loss, scaled gradient of the logits, loss per row.
constexpr List<Var> written_losses(Builder& builder, Var logits, Var targets, std::int64_t ignored, double scale) {
  Shape const kept = logits.shape().with(logits.rank() - 1, 1);
  Var const top = stop_gradient(reshape(reduce_max(logits, {-1}), kept)), e = exp(logits - top), sum = last_sum(e);
  Var const valid = convert(not_equal(targets, static_cast<double>(ignored)), logits.dtype());
  Var const number = maximum(sum_all(valid), 1.0);
  Var const hot = convert(
      equal(iota(builder, logits.shape(), logits.rank() - 1, targets.dtype()), reshape(targets, kept)), logits.dtype());
  Var const rows = (reshape(log(sum) + top, targets.shape()) - reduce_sum(hot * logits, {-1})) * valid;
  return {sum_all(rows) / number, (e / sum - hot) * reshape(valid, kept) / number * scale, rows};
}
constexpr List<Var> written_linear_cross_entropy(Parts const& p) {
  Shape const w = p.in(1).shape();
  std::int64_t const vocabulary = p.integer(1);
  Var const x = p.in(0), weight = slice(p.in(1), {0, 0}, {vocabulary, w[1]});
  DType const product = product_type(p.graph, p.id);
  List<Var> const loss = written_losses(p.builder, matrix(product, x, weight), p.in(2), p.integer(0), p.real());
  Var const dz = loss[1], dx = dot_general_of(product, dz, weight, {dz.rank() - 1}, {0});
  List<std::int64_t> const rows = ascending(0, dz.rank() - 1);
  return {loss[0], dx, pad(dot_general_of(product, dz, x, rows, rows), {0, 0}, {w[0] - vocabulary, 0}), loss[2]};
}

/// Sums over 1, 2, 4, ... elements, each of two of those before (Hillis, Steele 1986).
constexpr Var written_cumsum(Var x, int axis, bool reversed) {
  Shape const shape = x.shape();
  auto const at = static_cast<std::size_t>(axis);
  for (std::int64_t by = 1; by < shape[axis]; by *= 2) {
    List<std::int64_t> none(static_cast<std::size_t>(shape.rank()), 0), shift = none, starts = none;
    List<std::int64_t> limits(shape.begin(), shape.end());
    shift[at] = by;
    (reversed ? starts[at] : limits[at]) = reversed ? by : shape[axis] - by;
    Var const moved = slice(x, starts, limits);
    x = x + (reversed ? pad(moved, none, shift) : pad(moved, shift, none));
  }
  return x;
}

constexpr List<Var> written_adamw(Parts const& p) {
  double const b1 = p.real(0), b2 = p.real(1);
  Var const g = p.in(1) * p.in(7), m = p.in(2) * b1 + g * (1 - b1), v = p.in(3) * b2 + g * g * (1 - b2);
  Var const direction = m / p.in(5) / (sqrt(v / p.in(6)) + p.real(2)) + p.in(0) * p.real(3);
  return {p.in(0) - direction * p.in(4), m, v};
}

/// Results of a composite in primitives; empty when the operation is not one.
constexpr List<Var> written(Parts const& p) {
  if (Op const op = p.graph.op(p.id); is_function(op)) {
    List<Var> result;
    with_operation(op, [&]<class Of>() {
      if constexpr (requires { Of::decomposition(p); }) result = {Of::decomposition(p)};
    });
    return result;
  }
  switch (p.graph.op(p.id)) {
    case Op::swiglu: return {p.in(0) * logistic(p.in(0)) * p.in(1)};
    case Op::swiglu_gradient: {
      Var const g = p.in(0), gate = p.in(1);
      return {g * p.in(2) * silu_slope(gate), g * (gate * logistic(gate))};
    }
    case Op::cumsum: return {written_cumsum(p.in(0), static_cast<int>(p.integer(0)), p.integer(1) != 0)};
    case Op::dropout: {
      Var const x = p.in(0), bits = rng_bits(x.shape(), p.in(1), p.in(2), p.in(3), p.in(4));
      double const threshold = static_cast<double>(kernel::dropout_threshold(p.real()));
      Var const dropped = less(convert(bits, DType::float64), threshold);
      return {select(dropped, 0.0, x * kernel::dropout_scale(p.real()))};
    }
    case Op::linear: {
      Var const y = matrix(product_type(p.graph, p.id), p.in(0), p.in(1));
      return {p.count() == 3 ? y + p.in(2) : y};
    }
    case Op::layer_norm: return written_layer_norm(p);
    case Op::layer_norm_gradient: return written_layer_norm_gradient(p);
    case Op::rms_norm: return written_rms_norm(p);
    case Op::rms_norm_gradient: return written_rms_norm_gradient(p);
    case Op::rotary: return written_rotary(p);
    case Op::attention: return written_attention(p);
    case Op::attention_gradient: return written_attention_gradient(p);
    case Op::embedding: return written_embedding(p);
    case Op::embedding_gradient: return written_embedding_gradient(p);
    case Op::cross_entropy: return written_losses(p.builder, p.in(0), p.in(1), p.integer(), p.real());
    case Op::linear_cross_entropy: return written_linear_cross_entropy(p);
    case Op::square_sum: {
      Var const x = convert(p.in(0), DType::float64), sum = sum_all(x * x);
      return {p.count() == 2 ? p.in(1) + sum : sum};
    }
    case Op::adamw: return written_adamw(p);
    default: return {};
  }
}

}  // namespace detail

/// The same function without composites, bodies included. What a node becomes has its line.
constexpr Graph decompose(Graph const& graph) {
  Builder outermost;
  Builder builder(&outermost);  // bodies may have leaves of equal names
  List<List<Var>> values(graph.nodes.size());
  auto const at = [&](Id id) { builder.copy_source(graph.source(id), graph[id].line); };
  auto const leaf = [&](Id id, auto make) {
    at(id);
    values[static_cast<std::size_t>(id)] = {make(id)};
  };
  for (Id input : graph.inputs)
    leaf(input, [&](Id id) {
      return builder.input(graph.name(id), graph.dtype(id), graph.shape(id), graph.type(id).replication);
    });
  for (Id scalar : graph.scalars) leaf(scalar, [&](Id id) { return builder.scalar(graph.name(id), graph.dtype(id)); });
  for (Parameter const& parameter : graph.parameters)
    leaf(parameter.node, [&](Id id) {
      return builder.parameter(graph.name(id), graph.shape(id), parameter.init, parameter.stacked, Where::current(),
                               graph.type(id).replication);
    });
  for (std::size_t i = 0; i < graph.states.size(); ++i)
    leaf(graph.states[i], [&](Id id) {
      return builder.state(graph.name(id), graph.shape(id), graph.state_inits[i], graph.dtype(id),
                           state_update(graph, id));
    });
  auto const value = [&](Id id) { return values[static_cast<std::size_t>(id)][0]; };
  for (Id id = 0; id < graph.size(); ++id) {
    List<Var>& results = values[static_cast<std::size_t>(id)];
    if (!results.empty()) continue;
    if (graph.op(id) == Op::result) {
      results = {values[static_cast<std::size_t>(graph.operand(id, 0))][static_cast<std::size_t>(graph.integer(id))]};
      continue;
    }
    at(id);
    detail::Parts parts{builder, graph, id, {}};
    for (Id operand : graph.operands(id)) parts.operands.push_back(value(operand));
    results = detail::written(parts);
    if (!results.empty()) continue;
    Draft node = draft(graph.op(id), {}, {graph.integers(id).begin(), graph.integers(id).end()},
                       {graph.reals(id).begin(), graph.reals(id).end()}, graph.type(id));
    for (Var operand : parts.operands) node.operands.push_back(operand.id);
    node.custom = graph[id].custom;
    if (graph.op(id) == Op::repeat) node.body = builder.add_body(decompose(graph.body(id)));
    Var const copy = detail::emit(builder, std::move(node), Where::current());
    bool const projected = graph.results(id) > 1 || graph.op(id) == Op::repeat;
    for (int i = 0; i < graph.results(id); ++i)
      results.push_back(projected ? detail::result(copy, i, Where::current()) : copy);
  }
  for (Output const& output : graph.outputs) builder.output(graph.text_of(output.name), value(output.node));
  for (Update const& update : graph.updates) builder.update(value(update.target), value(update.value));
  return canonical(builder.graph());
}

}  // namespace tutti::graph
