// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What files of functions of elements start from. A file graph/op/NAME.hpp holds Operation<Op::NAME>, with
///   name                  as in printed graphs and messages
///   scalar, vector [, precise, integer]
///                         its bodies (kernel/elementwise_functions.hpp); `precise`, or `scalar`, is the reference too
///   reference(call, ...)  where the reference depends on types; call: graph::naive::Call
///   gradient(n)           its VJP, unless it has none: graph/vjp.hpp says what n offers
///   decomposition(p)      in primitives, where it is not one: graph/decompose.hpp
///   stablehlo             where it is a primitive: its name in StableHLO, or a function (e) that writes what it is
///                         there, with the same results at every edge; graph/stablehlo/call.hpp says what e offers
///   onnx                  likewise its name in ONNX, or a function (e): graph/onnx/call.hpp
///   type(in)              where it takes other operands than of one dtype and shape, or makes another type of them
/// and what of detail::Elementwise is otherwise; below it the function that models call. Everything else finds it in
/// the list of graph/op.hpp, through graph/op/table.hpp. It names other operations in templates alone, and includes
/// none: they are complete when these are instantiated.

#include <tutti/graph/values.hpp>
#include <tutti/kernel/elementwise_functions.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

namespace tutti::graph {

namespace detail {

inline constexpr double unlike_any = std::numeric_limits<double>::quiet_NaN();

/// What holds of an operation that does not say otherwise.
template <int Arity>
struct Elementwise {
  static constexpr int arity = Arity;
  static constexpr Differentiability differentiability = Differentiability::rule;
  static constexpr Linearity linearity = Linearity::none;
  static constexpr bool attributed = false;  ///< the first of the node's reals is an attribute
  static constexpr bool floating = false;    ///< of floating operands alone
  static constexpr bool truth = false;       ///< the result is 0 or 1
  static constexpr bool wraps = false;       ///< of 64-bit integers it can leave their range
  static constexpr bool commutes = false;
  /// As the second operand it changes nothing; if the operation commutes, as the first one too.
  static constexpr double neutral = unlike_any;
};

/// The result is boolean, and has no gradient.
struct Comparison : Elementwise<2> {
  static constexpr Differentiability differentiability = Differentiability::none;
  static constexpr bool truth = true;

  static constexpr Type type(Operands const& in) {
    in.same_dtype(0, 2);
    in.same_shape(0, 2);
    return {DType::boolean, {}, in.shape(0)};
  }
};

/// Of truth values.
template <int Arity>
struct Logical : Elementwise<Arity> {
  static constexpr Differentiability differentiability = Differentiability::none;
  static constexpr bool truth = true;

  static constexpr Type type(Operands const& in) {
    for (int i = 0; i < Arity; ++i)
      if (in.dtype(i) != DType::boolean)
        refuse(in.where, in.draft.op, "operands must be boolean; a comparison makes one", in.dtype(i), DType::boolean);
    in.same_shape(0, Arity);
    return in[0];
  }
};

/// + - * /. Numbers fold where the operation says how: it keeps a seed of one, or of one over the number of
/// micro-batches, a constant through the reverse pass. What changes nothing leaves no node.
template <Op O>
constexpr Var arithmetic(Operand const& a, Operand const& b) {
  using Body = Operation<O>;
  Pair const pair = matched(O, a, b);
  if (pair.a.dtype() == pair.b.dtype()) {
    if constexpr (requires { Body::folds; })
      if (auto const x = constant_value(pair.a), y = constant_value(pair.b); x && y && is_floating(pair.a.dtype()))
        return full_like(pair.a, Body::scalar(*x, *y), a.where);
    if (is_constant(pair.b, Body::neutral)) return pair.a;
    if (Body::commutes && is_constant(pair.a, Body::neutral)) return pair.b;
  }
  return emit(*pair.a.builder, draft(O, {pair.a.id, pair.b.id}), a.where);
}

}  // namespace detail

}  // namespace tutti::graph

// What asks for operations, above as templates, finds them all.
#include <tutti/graph/infer_types.hpp>
