// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Whether a node that comes from outside of this program is what its operation takes: counts of operands and
/// attributes, their ranges, and what graph::infer leaves to the functions on handles. After it `infer` is safe.

#include <tutti/core/checked.hpp>
#include <tutti/graph/form_counts.hpp>
#include <tutti/graph/infer_types.hpp>
#include <tutti/graph/ir.hpp>
#include <tutti/graph/op/table.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::graph {

namespace detail {

/// Refuses in sentences; the caller says of which node.
[[noreturn]] inline void malformed(std::string const& why) { throw Error(ErrorKind::format, "graph", why); }
inline void require_form(bool holds, char const* why) {
  if (!holds) malformed(why);
}

/// A dtype or an operator of ranks as an attribute.
constexpr bool is_dtype(std::int64_t value) noexcept { return value >= 0 && value < dtype_count; }
constexpr bool is_port_op(std::int64_t value) noexcept {
  return value >= 0 && value <= static_cast<std::int64_t>(comm::PortOp::avg);
}

inline void check_repeat(Graph const& graph, Draft const& draft) {
  require_form(draft.body >= 0 && static_cast<std::size_t>(draft.body) < graph.bodies.size(), "a repeat has no body");
  Graph const& body = graph.bodies[static_cast<std::size_t>(draft.body)];
  auto const& values = draft.integers;
  std::int64_t const length = values[0], carried = values[1], invariants = values[2], stacked = values[3],
                     all = static_cast<std::int64_t>(draft.operands.size());
  require_form(length >= 0 && carried >= 1 && invariants >= 0 && stacked >= 0 && carried <= all && invariants <= all &&
                   stacked <= all && carried + invariants + stacked == all,
               "a repeat's counts are not those of its operands");
  require_form((values[4] == 0 || values[4] == 1) && values[5] >= 0 &&
                   values[5] <= static_cast<std::int64_t>(Recompute::block),
               "a repeat's direction or recomputation is none");
  require_form(static_cast<std::int64_t>(body.inputs.size()) == all &&
                   static_cast<std::int64_t>(body.outputs.size()) >= carried,
               "a repeat's body takes or gives another number of values");
  for (std::int64_t i = 0; i < all; ++i) {
    Type const& outer = graph.type(draft.operands[static_cast<std::size_t>(i)]);
    Type inner = body.type(body.inputs[static_cast<std::size_t>(i)]);
    if (i >= carried + invariants) {
      require_form(outer.shape.rank() > 0 && outer.shape[0] == length,
                   "a stacked operand needs one element per iteration along its first axis");
      require_form(inner.shape.rank() < Shape::max_rank, "a stacked operand has too many axes");
      inner.shape = with_first(length, inner.shape);
    }
    require_form(inner == outer, "an operand of a repeat has another type than its body's input");
    if (i < carried)
      require_form(body.type(body.outputs[static_cast<std::size_t>(i)].node) == inner,
                   "a repeat's carried value changes its type");
  }
}

inline void require_heads(Operands const& in) {
  std::int64_t const heads = in.integer(0), kv = in.integer(1);
  require_form(heads >= 1 && heads <= (1 << 20) && kv >= 1 && kv <= heads && heads % kv == 0,
               "heads of keys and values must divide the heads of queries");
}

/// What infer() does not ask of composites that only gradients make.
inline void check_composite(Operands const& in) {
  Op const op = in.draft.op;
  auto const float32 = [&](int first, int end) {
    for (int i = first; i < end; ++i) require_form(in.dtype(i) == DType::float32, "an operand must be float32");
  };
  auto const shape = [&](int i, Shape const& wanted) {
    require_form(in.shape(i) == wanted, "an operand has another shape than the others ask for");
  };
  switch (op) {
    case Op::layer_norm_gradient: case Op::rms_norm_gradient:
      in.floating(0);
      in.same_dtype(0, 3);
      require_form(in.shape(1).rank() > 0, "x must have a last axis");
      for (int i = 3; i < in.count(); ++i) float32(i, i + 1), shape(i, leading(in.shape(1)));
      break;
    case Op::rotary:
      require_form(in.integer(0) >= 0 && in.integer(0) <= 1 && in.integer(1) >= 0 && in.integer(1) <= 1,
                   "a rotation's pairing or direction is none");
      break;
    case Op::attention_gradient: {
      in.floating(1);
      in.same_dtype(0, 3);
      require_heads(in);
      std::int64_t const heads = in.integer(0), kv = in.integer(1);
      Shape const& qkv = in.shape(1);
      require_form(qkv.rank() == 3 && qkv[2] % (heads + 2 * kv) == 0, "qkv must be (B, T, (heads + 2 kv heads) size)");
      Shape const out = qkv.with(2, qkv[2] / (heads + 2 * kv) * heads);
      shape(0, out), shape(2, out), shape(3, {qkv[0], heads, qkv[1]}), float32(3, 4);
      break;
    }
    case Op::attention: require_heads(in); break;
    case Op::embedding: in.floating(1); break;
    case Op::embedding_gradient: {
      in.indices(0);
      in.floating(1);
      require_form(in.shape(0).rank() == 2 && in.shape(1).rank() == 3 && leading(in.shape(1)) == in.shape(0),
                   "tokens (B, T) need gradients (B, T, C)");
      require_form(in.integer(0) >= 1 && in.integer(1) >= 0 && (in.integer(1) == 0 || in.integer(1) >= in.shape(0)[1]),
                   "the rows of table or positions are too few");
      if (in.count() == 3) in.same_dtype(1, 3);
      break;
    }
    case Op::adamw: float32(0, 8); break;
    case Op::rng_bits:
      for (int i = 0; i < in.count(); ++i) in.indices(i);
      break;
    case Op::dynamic_slice: case Op::dynamic_update_slice:
      for (int i = op == Op::dynamic_slice ? 1 : 2; i < in.count(); ++i) in.indices(i);
      break;
    default: break;
  }
}

inline void check_attributes(Operands const& in) {
  auto const& draft = in.draft;
  if (info(draft.op).kind == OpClass::collective || draft.op == Op::rank)
    if (std::size_t const axis = port_integers(draft.op); draft.integers.size() > axis)
      require_form(draft.integers[axis] >= (draft.integers.size() == axis + 2 ? 0 : 1) &&
                       draft.integers[axis] < mesh_axes, "the axis of the mesh is none");
  switch (draft.op) {
    case Op::iota:
      require_form(in.integer(0) >= 0 && in.integer(0) < draft.type.shape.rank(), "the axis is not below the rank");
      break;
    case Op::constant: require_form(holds(draft.type.dtype, in.real(0)), "the type does not hold the value"); break;
    case Op::scalar: require_form(draft.type.shape.rank() == 0, "a scalar has no axes"); break;
    case Op::cumsum: require_form(in.integer(1) == 0 || in.integer(1) == 1, "the direction is unknown"); break;
    case Op::dropout: require_form(in.real(0) >= 0 && in.real(0) < 1, "p is not at least 0 and below 1"); break;
    case Op::rank:
      require_form(draft.type.dtype == DType::int32 && draft.type.shape.rank() == 0, "a rank is an int32 without axes");
      break;
    case Op::parameter:
      require_form(draft.type.dtype == DType::float32 &&
                       draft.type.replication[MeshAxis::data] != Replication::partial,
                   "a parameter is float32 and no addend");
      break;
    case Op::state:
      require_form(draft.integers.empty() || in.integer(0) == static_cast<std::int64_t>(StateUpdate::part) ||
                       (in.integer(0) == static_cast<std::int64_t>(StateUpdate::averaged) &&
                        is_floating(draft.type.dtype)),
                   "a state is updated in no known way");
      break;
    case Op::concatenate:
      require_form(in.integer(0) >= 0 && in.integer(0) < Shape::max_rank, "the axis is not below the rank");
      break;
    case Op::pad: {
      Shape const& x = in.shape(0);
      auto const rank = static_cast<std::size_t>(x.rank());
      require_form(draft.integers.size() == 3 * rank, "one low, high and interior padding per axis are needed");
      for (std::size_t axis = 0; axis < rank; ++axis) {
        std::int64_t const inside = checked_multiply(x[static_cast<int>(axis)], draft.integers[2 * rank + axis]);
        static_cast<void>(checked_add(checked_add(draft.integers[axis], draft.integers[rank + axis]),
                                      checked_add(inside, x[static_cast<int>(axis)])));
      }
      require_form(holds(in.dtype(0), in.real(0)), "the type does not hold the value");
      break;
    }
    case Op::slice:
      for (std::int64_t const value : draft.integers)
        require_form(value >= 0 && value <= (std::int64_t{1} << 62), "a start, limit or stride is out of range");
      break;
    case Op::dot_general: {
      std::int64_t const batch = in.integer(0), contracted = in.integer(1);
      bool const few = batch >= 0 && batch <= Shape::max_rank && contracted >= 0 && contracted <= Shape::max_rank;
      std::int64_t const axes = few ? 2 * (batch + contracted) : 0,
                         more = static_cast<std::int64_t>(draft.integers.size()) - 2 - axes;
      require_form(few && (more == 0 || more == 1), "both operands need as many batch and contracted axes");
      break;
    }
    case Op::vary: case Op::all_reduce: require_form(is_port_op(in.integer(0)), "the operator of ranks is none"); break;
    case Op::broadcast: require_form(in.integer(0) >= 0 && in.integer(0) < (1 << 30), "the root is no rank"); break;
    case Op::all_to_all:
    case Op::send_receive:
      require_form(in.integer(0) >= 1 && in.integer(0) < (1 << 30), "the ranks are none");
      if (draft.op == Op::send_receive)
        require_form(
            in.integer(1) > -(1 << 30) && in.integer(1) < (1 << 30) && (in.integer(2) == 0 || in.integer(2) == 1),
            "where it goes is no rank");
      break;
    case Op::all_gather: case Op::reduce_scatter:
      require_form(in.integer(0) >= 1 && in.integer(0) < (1 << 30) && in.shape(0).rank() > 0, "the ranks are none");
      static_cast<void>(checked_multiply(in.shape(0)[0], in.integer(0)));
      if (draft.op == Op::reduce_scatter) require_form(is_port_op(in.integer(1)), "the operator of ranks is none");
      else if (draft.integers.size() > 2)
        require_form(in.integer(2) > 0 && in.integer(2) < 4, "what is said of its gradient is unknown");
      break;
    default: break;
  }
  if (is_product(draft.op) && draft.op != Op::dot_general && form_of(draft.op).integers.most ==
                                                                  static_cast<int>(draft.integers.size()))
    require_form(is_dtype(draft.integers.back()), "the operands' rounded type is none");
  if (draft.op == Op::dot_general && (draft.integers.size() - 2) % 2 == 1)
    require_form(is_dtype(draft.integers.back()), "the operands' rounded type is none");
}

}  // namespace detail

/// Of a node over the nodes of `graph` so far: its operation takes these operands, integers and reals.
/// Errors  format, in a sentence; those of the operands' types are infer's.
inline void check_form(Graph const& graph, Draft const& draft) {
  using detail::require_form;
  OpInfo const& facts = info(draft.op);
  detail::Form form = detail::form_of(draft.op);
  if (is_function(draft.op))
    with_operation(draft.op, [&]<class Of>() { form = {Of::arity, 0, Of::attributed ? 1 : 0}; });
  require_form(draft.op != Op::custom, "an operation from outside of the library does not travel");
  require_form(form.operands.holds(draft.operands.size()), "it has another number of operands");
  require_form(form.integers.holds(draft.integers.size()) && form.reals.holds(draft.reals.size()),
               "it has another number of attributes");
  Op const op = draft.op;
  bool const named = op == Op::input || op == Op::parameter || op == Op::state || op == Op::scalar;
  require_form(named == (draft.name != none), "leaves have a name, and nothing else has one");
  require_form((draft.op == Op::repeat) == (draft.body != none), "a repeat has a body, and nothing else has one");
  for (Id const operand : draft.operands) {
    bool const several = graph.results(operand) > 1 || graph.op(operand) == Op::repeat;
    require_form(several == (draft.op == Op::result), "a node of several results is used through its results alone");
  }
  if (draft.op == Op::result)
    require_form(draft.integers[0] >= 0 && draft.integers[0] < graph.results(draft.operands[0]),
                 "there is no such result");
  if (facts.kind == OpClass::leaf && draft.operands.empty())
    require_form(!draft.type.replication.any(Replication::partial), "a leaf is no part of a sum");
  detail::Operands const in{graph, draft, std::source_location::current()};
  detail::check_attributes(in);
  if (draft.op == Op::repeat) detail::check_repeat(graph, draft);
  else detail::check_composite(in);
}

}  // namespace tutti::graph
