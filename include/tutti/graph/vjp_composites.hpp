// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Vector-Jacobian products of composites.

#include <tutti/graph/back.hpp>

#include <cstdint>

namespace tutti::graph::detail {

constexpr void back_linear(Back const& n) {
  Var const g = n.g();
  List<std::int64_t> const rows = ascending(0, g.rank() - 1);
  DType const product = product_type(n.builder.graph(), n.id);
  if (n.wants(0)) n.give(0, dot_general_of(product, g, n.in(1), {g.rank() - 1}, {0}));
  if (n.wants(1)) n.give(1, dot_general_of(product, g, n.in(0), rows, rows));
  if (n.count() == 3 && n.wants(2)) n.give(2, reduce(Op::reduce_sum, g, rows, n.where));
}
constexpr void back_layer_norm(Back const& n) {
  Var const d = composite(Op::layer_norm_gradient, {n.g(), n.in(0), n.in(1), n.out(1), n.out(2)}, {}, {}, n.where);
  for (int i = 0; i < 3; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
constexpr void back_rms_norm(Back const& n) {
  Var const d = composite(Op::rms_norm_gradient, {n.g(), n.in(0), n.in(1), n.out(1)}, {}, {}, n.where);
  for (int i = 0; i < 2; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
constexpr void back_swiglu(Back const& n) {
  Var const d = composite(Op::swiglu_gradient, {n.g(), n.in(0), n.in(1)}, {}, {}, n.where);
  for (int i = 0; i < 2; ++i)
    if (n.wants(i)) n.give(i, result(d, i, n.where));
}
/// Of x, the rotation back.
constexpr void back_rotary(Back const& n) {
  std::int64_t const pairing = n.integer(0), inverse = n.integer(1);
  n.give(0, composite(Op::rotary, {n.g(), n.in(1), n.in(2)}, {pairing, 1 - inverse}, {}, n.where));
  if (!n.wants(1) && !n.wants(2)) return;
  std::int64_t const pairs = n.in(1).shape()[1];
  RotaryPairs const x(n.in(0), pairing, pairs), g(n.g(), pairing, pairs);
  if (n.wants(1)) n.give(1, reduce_sum(g.a * x.a + g.b * x.b, {0, 2}));
  if (n.wants(2)) n.give(2, reduce_sum(inverse != 0 ? g.a * x.b - g.b * x.a : g.b * x.a - g.a * x.b, {0, 2}));
}
constexpr void back_attention(Back const& n) {
  n.give(0, composite(Op::attention_gradient, {n.g(), n.in(0), n.out(0), n.out(1)}, n.integers(), {n.real()}, n.where));
}
constexpr void back_embedding(Back const& n) {
  std::int64_t const position_rows = n.count() == 3 ? n.in(2).shape()[0] : 0;
  Var const d = composite(Op::embedding_gradient, {n.in(0), n.g()}, {n.in(1).shape()[0], position_rows}, {}, n.where);
  if (n.wants(1)) n.give(1, result(d, 0, n.where));
  if (n.count() == 3 && n.wants(2)) n.give(2, result(d, 1, n.where));
}
/// The loss kernels make their gradients themselves: a constant cotangent goes into their scale, any other one
/// multiplies what they made.
constexpr void back_loss(Back const& n) {
  Var node = n.out();
  double scale = n.real();
  auto const seed = constant_value(n.g());
  if (seed && *seed != scale) {
    bool used = false;  // somebody relies on the present scale already
    for (Id id = 0; id < n.builder.graph().size(); ++id)
      used = used ||
             (n.builder.graph().op(id) == Op::result && n.builder.graph().operand(id, 0) == n.id &&
              n.builder.graph().integer(id) > 0 && n.builder.graph().integer(id) + 1 < n.builder.graph().results(n.id));
    scale = *seed;
    if (used) node = emit(n.builder, draft(n.builder.graph().op(n.id), n.operands, n.integers(), {scale}), n.where);
    else n.builder.replace_real(n.id, 0, scale);
  }
  int const differentiable = n.builder.graph().op(n.id) == Op::cross_entropy ? 1 : 2;
  for (int i = 0; i < differentiable; ++i) {
    if (!n.wants(i)) continue;
    Var const d = result(node, i + 1, n.where);
    n.give(i, seed ? d : d * (n.g() / scale));
  }
}

}  // namespace tutti::graph::detail

// Rules are of no use without their table and the reverse pass.
#include <tutti/graph/vjp.hpp>  // NOLINT(misc-header-include-cycle)
