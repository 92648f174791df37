// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Operations that have a hand-written kernel, a gradient of their own and a decomposition. Contracts stand in kernel/.

#include <tutti/graph/ops_indexing.hpp>
#include <tutti/kernel/rotary.hpp>

namespace tutti::graph {

namespace detail {
/// first, first + 1, ... end - 1.
constexpr List<std::int64_t> ascending(std::int64_t first, std::int64_t end) {
  List<std::int64_t> values;
  for (std::int64_t i = first; i < end; ++i) values.push_back(i);
  return values;
}
constexpr Var composite(Op op, std::initializer_list<Var> operands, List<std::int64_t> integers, List<double> reals,
                        Where where) {
  Builder* builder = nullptr;
  for (Var v : operands) builder = &home(v, Var{builder, none}, {}, where);
  List<Id> ids;
  for (Var v : operands) ids.push_back(builder->adopt(v, where));
  return emit(*builder, draft(op, std::move(ids), std::move(integers), std::move(reals)), where);
}
/// 1 / sqrt(n) without <cmath>, which is not usable in constant expressions.
constexpr double reciprocal_root(double n) {
  double root = n > 1 ? n : 1;
  for (int i = 0; i < 64; ++i) {
    double const next = 0.5 * (root + n / root);
    if (next >= root) break;
    root = next;
  }
  return 1 / root;
}
}  // namespace detail

/// x (..., I) weight^T, weight (O, I) as PyTorch stores it: (..., O).
constexpr Var linear(Var x, Var weight, Where where = Where::current()) {
  return detail::composite(Op::linear, {x, weight}, {}, {}, where);
}
/// x weight^T + bias.
constexpr Var linear(Var x, Var weight, Var bias, Where where = Where::current()) {
  return detail::composite(Op::linear, {x, weight, bias}, {}, {}, where);
}
/// Over the last axis.
constexpr Var layer_norm(Var x, Var gamma, Var beta, double eps = 1e-5, Where where = Where::current()) {
  return detail::result(detail::composite(Op::layer_norm, {x, gamma, beta}, {}, {eps}, where), 0, where);
}
/// x / sqrt(avg(x^2) + eps) * weight, over the last axis.
constexpr Var rms_norm(Var x, Var weight, double eps = 1e-5, Where where = Where::current()) {
  return detail::result(detail::composite(Op::rms_norm, {x, weight}, {}, {eps}, where), 0, where);
}

/// silu(gate) * up: the gate of SwiGLU feed-forward layers. Its gradient keeps gate and up alone.
constexpr Var swiglu(Var gate, Var up, Where where = Where::current()) {
  return detail::composite(Op::swiglu, {gate, up}, {}, {}, where);
}

/// Along an axis (a negative one counts from the end), the sum of every element and of all before it; `reversed`: of
/// all behind it. Integers wrap. In order, floating sums in float64, rounded for each element.
constexpr Var cumsum(Var x, int axis, bool reversed = false, Where where = Where::current()) {
  std::int64_t const from_front = axis < 0 ? axis + x.rank(where) : axis;
  return detail::composite(Op::cumsum, {x}, {from_front, reversed ? 1 : 0}, {}, where);
}

/// Which numbers a dropout draws: integers () all. Two dropouts of a step have different streams. `first` is the
/// position of the tensor's first element in what all ranks and micro-steps have together, so that the mask of an
/// element does not depend on who computes it.
struct DropoutKey {
  Var seed, step, stream, first;
};
/// Srivastava et al. 2014, scaled in training: each element is 0 with probability p, else x / (1 - p). Its gradient
/// draws the same mask again: none is kept.
/// Requires     0 <= p < 1
/// Determinism  the mask is a function of the key and the position alone (op.hpp): Philox4x32-10
constexpr Var dropout(Var x, double p, DropoutKey const& key, Where where = Where::current()) {
  if (!(p >= 0 && p < 1)) refuse(where, "dropout", ErrorKind::invalid_argument, "p must be at least 0 and below 1");
  if (p == 0) return x;
  return detail::composite(Op::dropout, {x, key.seed, key.step, key.stream, key.first}, {}, {p}, where);
}

/// Shapes  cosine, sine (positions, head size / 2), float32
struct Rotations {
  Var cosine, sine;
};
/// Rotations of positions first, first + 1, ...: angles position * base^(-2 i / head_size), computed in float64 at
/// every run. Make them once outside of the layers' loop. `first` is an integer (): the number of tokens before these.
constexpr Rotations rotations(Var first, std::int64_t positions, std::int64_t head_size, double base = 10000,
                              Where where = Where::current()) {
  Builder& builder = detail::home(first, where);
  if (head_size < 2 || head_size % 2 != 0)
    refuse(where, "rotations", "the head size must be even and positive", Shape{head_size});
  if (!(base > 0)) refuse(where, "rotations", ErrorKind::invalid_argument, "the base must be positive");
  DType const wide = DType::float64;
  auto const from = [&](Var v) { return Operand(v, where); };
  Var const step = from(log(constant(builder, base, {}, wide, where), where)) * (-2.0 / static_cast<double>(head_size));
  Var const frequency = exp(from(iota(builder, {head_size / 2}, 0, wide, where)) * step, where);
  Var const position = from(iota(builder, {positions, 1}, 0, wide, where)) + convert(first, wide, where);
  Var const angle = from(position) * frequency;
  return {convert(cos(angle, where), DType::float32, where), convert(sin(angle, where), DType::float32, where)};
}
/// Rotations of positions 0, 1, ...
constexpr Rotations rotations(Builder& builder, std::int64_t positions, std::int64_t head_size, double base = 10000,
                              Where where = Where::current()) {
  return rotations(constant(builder, 0, {}, DType::float64, where), positions, head_size, base, where);
}
/// Rotary position embedding of x (..., T, C), whose last axis holds any number of heads: queries and keys before
/// attention. T positions of rotations.
constexpr Var rotary(Var x, Rotations const& by, kernel::RotaryPairing pairing = kernel::RotaryPairing::half,
                     Where where = Where::current()) {
  return detail::composite(Op::rotary, {x, by.cosine, by.sine}, {static_cast<std::int64_t>(pairing), 0}, {}, where);
}
namespace detail {
/// The two elements of every pair, (rows, T, heads, pairs) each, and how they stand in x (..., T, C).
struct RotaryPairs {
  Shape shape, grouped;
  int axis;
  Var a, b;

  constexpr RotaryPairs(Var x, std::int64_t pairing, std::int64_t pairs) : shape(x.shape()) {
    std::int64_t const tokens = shape[shape.rank() - 2], heads = last(shape) / (2 * pairs);
    std::int64_t const rows = leading(shape, 2).size();
    bool const half = static_cast<kernel::RotaryPairing>(pairing) == kernel::RotaryPairing::half;
    axis = half ? 3 : 4;
    grouped = half ? Shape{rows, tokens, heads, 2, pairs} : Shape{rows, tokens, heads, pairs, 2};
    Var const all = reshape(x, grouped);
    auto const element = [&](std::int64_t i) {
      List<std::int64_t> starts(5, 0), limits(grouped.begin(), grouped.end());
      starts[static_cast<std::size_t>(axis)] = i;
      limits[static_cast<std::size_t>(axis)] = i + 1;
      return reshape(slice(all, std::move(starts), std::move(limits)), Shape{rows, tokens, heads, pairs});
    };
    a = element(0);
    b = element(1);
  }
  /// Puts two such elements where a and b stood.
  constexpr Var joined(Var first, Var second) const {
    Shape const one = grouped.with(axis, 1);
    return reshape(concatenate({reshape(first, one), reshape(second, one)}, axis), shape);
  }
};
}  // namespace detail

/// Causal self-attention on packed projections (B, T, (heads + 2 * kv_heads) * size): rows of Q, then K, then V,
/// `heads` heads of queries, of which heads / kv_heads share each of the `kv_heads` heads of keys and values. Scores
/// are scaled by 1 / sqrt(size). Result (B, T, heads * size).
constexpr Var attention(Var qkv, int heads, int kv_heads, Where where = Where::current()) {
  std::int64_t const width = qkv.rank(where) == 3 ? qkv.shape()[2] : 1, all = heads + std::int64_t{2} * kv_heads;
  double const scale = detail::reciprocal_root(static_cast<double>(all > 0 && width >= all ? width / all : 1));
  return detail::result(detail::composite(Op::attention, {qkv}, {heads, kv_heads}, {scale}, where), 0, where);
}
/// Each head of queries with keys and values of its own: qkv is (B, T, 3C).
constexpr Var attention(Var qkv, int heads, Where where = Where::current()) {
  return attention(qkv, heads, heads, where);
}
/// Rows of table (V, C) for tokens (...) of any shape, a scalar too: (..., C).
constexpr Var embed(Var table, Var tokens, Where where = Where::current()) {
  Shape const shape = tokens.shape(where);
  if (shape.rank() == 2) return detail::composite(Op::embedding, {tokens, table}, {}, {}, where);
  Var const row = reshape(tokens, Shape{1, shape.size()}, where);  // the operation takes (B, T)
  Var const rows = detail::composite(Op::embedding, {row, table}, {}, {}, where);
  return reshape(rows, appended(shape, rows.shape()[2]), where);
}
/// Rows of the table plus learned positions (T or more, C), for tokens (..., T).
constexpr Var embed(Var table, Var positions, Var tokens, Where where = Where::current()) {
  Shape const shape = tokens.shape(where);
  if (shape.rank() == 2 || shape.rank() == 0)  // a scalar has no place among the positions: refused
    return detail::composite(Op::embedding, {tokens, table, positions}, {}, {}, where);
  Var const sequences = reshape(tokens, Shape{leading(shape).size(), last(shape)}, where);
  Var const rows = detail::composite(Op::embedding, {sequences, table, positions}, {}, {}, where);
  return reshape(rows, appended(shape, rows.shape()[2]), where);
}

/// The mean over tokens, and each token's own loss: 0 where its target is ignored.
struct Losses {
  Var mean, tokens;
};
/// Softmax cross-entropy of logits (..., V) against targets (...); targets equal to `ignored` do not count.
constexpr Losses cross_entropy_losses(Var logits, Var targets, std::int64_t ignored = -1,
                                      Where where = Where::current()) {
  Var const node = detail::composite(Op::cross_entropy, {logits, targets}, {ignored}, {1}, where);
  return {detail::result(node, 0, where), detail::result(node, 2, where)};
}
constexpr Var cross_entropy(Var logits, Var targets, std::int64_t ignored = -1, Where where = Where::current()) {
  return detail::result(detail::composite(Op::cross_entropy, {logits, targets}, {ignored}, {1}, where), 0, where);
}
/// cross_entropy(linear(x, weight), targets) that never holds all logits. The weight may have more rows than there are
/// classes: `vocabulary` of them count (0: all).
constexpr Losses linear_cross_entropy_losses(Var x, Var weight, Var targets, std::int64_t vocabulary = 0,
                                             std::int64_t ignored = -1, Where where = Where::current()) {
  if (vocabulary == 0 && weight.rank(where) > 0) vocabulary = weight.shape()[0];
  Var const node = detail::composite(Op::linear_cross_entropy, {x, weight, targets}, {ignored, vocabulary}, {1}, where);
  return {detail::result(node, 0, where), detail::result(node, 3, where)};
}
constexpr Var linear_cross_entropy(Var x, Var weight, Var targets, std::int64_t vocabulary = 0,
                                   std::int64_t ignored = -1, Where where = Where::current()) {
  return linear_cross_entropy_losses(x, weight, targets, vocabulary, ignored, where).mean;
}

/// Sum of x^2 in float64, onto `base` (float64 ()): for the norm of all gradients.
constexpr Var square_sum(Var x, Where where = Where::current()) {
  return detail::composite(Op::square_sum, {x}, {}, {}, where);
}
constexpr Var square_sum(Var x, Var base, Where where = Where::current()) {
  return detail::composite(Op::square_sum, {x, base}, {}, {}, where);
}

struct AdamWCoefficients {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
struct AdamWResult {
  Var parameter, m, v;
};
/// One step; kernel/adamw.hpp has the equation. Everything from `learning_rate` on is float32 ().
constexpr AdamWResult adamw(Var parameter, Var gradient, Var m, Var v, Var learning_rate, Var correction1,
                            Var correction2, Var gradient_scale, AdamWCoefficients const& c,
                            Where where = Where::current()) {
  Var const node =
      detail::composite(Op::adamw, {parameter, gradient, m, v, learning_rate, correction1, correction2, gradient_scale},
                        {}, {c.beta1, c.beta2, c.eps, c.weight_decay}, where);
  return {detail::result(node, 0, where), detail::result(node, 1, where), detail::result(node, 2, where)};
}

}  // namespace tutti::graph
