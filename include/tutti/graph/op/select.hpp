// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// predicate, a, b: a where the predicate holds, else b.

#include <tutti/graph/op/elementwise.hpp>

namespace tutti::graph {

template <>
struct Operation<Op::select> : detail::Elementwise<3> {
  static constexpr std::string_view name = "select";

  static constexpr Type type(detail::Operands const& in) {
    if (in.dtype(0) != DType::boolean)
      refuse(in.where, in.draft.op, "the predicate must be boolean; a comparison makes one", in.dtype(0),
             DType::boolean);
    in.same_dtype(1, 3);
    in.same_shape(0, 3);
    return in[1];
  }

  template <class Real>
  static constexpr Real scalar(Real predicate, Real a, Real b) {
    return predicate != 0 ? a : b;
  }
  TUTTI_VECTOR_BODY((V predicate, V a, V b) { return select(not_equal(predicate, like(a, 0.0f)), a, b); })
  template <class Register>
  static constexpr Register integer(Register predicate, Register a, Register b) {
    return predicate != 0 ? a : b;
  }

  static constexpr void gradient(auto const& n) {
    n.give(1, select(n.in(0), n.g(), 0.0)), n.give(2, select(n.in(0), 0.0, n.g()));
  }

  static auto stablehlo(auto const& e) { return e.select(e.in(0), e.in(1), e.in(2)); }
  static auto onnx(auto const& e) { return e.where(e.in(0), e.in(1), e.in(2)); }
};

constexpr Var select(Var predicate, Operand a, Operand b) {
  detail::Pair const pair = detail::matched(Op::select, a, b);
  Builder& builder = detail::home(predicate, pair.a, pair.b, a.where);
  Shape const shape = detail::common_shape(Op::select, predicate.shape(a.where), pair.a.shape(), a.where);
  auto const ready = [&](Var v) { return broadcast_to(detail::adopted(builder, v, a.where), shape, a.where).id; };
  Id const p = ready(predicate), x = ready(pair.a), y = ready(pair.b);
  return detail::emit(builder, draft(Op::select, {p, x, y}), a.where);
}

}  // namespace tutti::graph
