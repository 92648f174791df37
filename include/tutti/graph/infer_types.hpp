// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The switch over operations that infer.hpp's pieces serve: types of the results of a draft.

#include <tutti/graph/infer.hpp>
#include <tutti/graph/op/table.hpp>

#include <span>

namespace tutti::graph {

namespace detail {

constexpr Shape composite_shape(Operands const& in, List<Type>& more) {
  Op const op = in.draft.op;
  auto const where = in.where;
  auto const f32 = [&](Shape const& shape) { more.push_back({DType::float32, Replication::replicated, shape}); };
  Shape const& x = in.shape(0);
  switch (op) {
    case Op::linear: {
      in.same_dtype(0, in.count());
      in.floating(0);
      rounded_operands(in);
      Shape const& w = in.shape(1);
      if (x.rank() == 0 || w.rank() != 2 || w[1] != last(x))
        refuse(where, op, "x (..., I) needs a weight (O, I): the last extents must be equal", x, w);
      if (in.count() == 3 && (in.shape(2).rank() != 1 || in.shape(2)[0] != w[0]))
        refuse(where, op, "the bias needs one element per row of the weight", w, in.shape(2));
      return x.with(x.rank() - 1, w[0]);
    }
    case Op::layer_norm:
      in.same_dtype(0, 3);
      in.floating(0);
      if (x.rank() == 0) refuse(where, op, "x must have a last axis to normalise", x);
      in.vector_of(1, last(x), x);
      in.vector_of(2, last(x), x);
      f32(leading(x));
      f32(leading(x));
      return x;
    case Op::layer_norm_gradient:
      in.same_shape(0, 2);
      in.vector_of(2, last(x), x);
      more.push_back(in[2]);
      more.push_back(in[2]);
      return x;
    case Op::rms_norm:
      in.same_dtype(0, 2);
      in.floating(0);
      if (x.rank() == 0) refuse(where, op, "x must have a last axis to normalise", x);
      in.vector_of(1, last(x), x);
      f32(leading(x));
      return x;
    case Op::rms_norm_gradient:
      in.same_shape(0, 2);
      in.vector_of(2, last(x), x);
      more.push_back(in[2]);
      return x;
    case Op::swiglu: case Op::swiglu_gradient:
      in.same_dtype(0, in.count());
      in.floating(0);
      in.same_shape(0, in.count());
      if (x.rank() == 0) refuse(where, op, "gate and up must have shape (..., C)", x);
      if (op == Op::swiglu_gradient) more.push_back(in[2]);
      return x;
    case Op::cumsum:
      if (in.dtype(0) == DType::boolean)
        refuse(where, op, "truth values have no sum; convert them", in.dtype(0), DType::int32);
      if (in.integer(0) < 0 || in.integer(0) >= x.rank())
        refuse(where, op, "the axis must be below the rank of the operand", x);
      return x;
    case Op::dropout:
      in.floating(0);
      in.scalars(1, 5);
      for (int i = 1; i < 5; ++i) in.indices(i);
      return x;
    case Op::rotary: {
      in.same_dtype(0, 3);
      in.floating(0);
      in.same_shape(1, 3);
      Shape const& table = in.shape(1);
      if (x.rank() < 2) refuse(where, op, "x must have shape (..., T, C)", x);
      if (table.rank() != 2 || table[0] != x[x.rank() - 2])
        refuse(where, op, "x (..., T, C) needs rotations (T, head size / 2)", x, table);
      if (table[1] < 1 || last(x) % (2 * table[1]) != 0)
        refuse(where, op, "the channels C of x (..., T, C) must divide by the head size, twice the rotations", x,
               table);
      return x;
    }
    case Op::attention: {
      in.floating(0);
      std::int64_t const heads = in.integer(0), kv_heads = in.integer(1), all = heads + 2 * kv_heads;
      if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
        refuse(where, op, "heads of keys and values must be at least 1 and divide the heads of queries",
               Shape{heads}, Shape{kv_heads});
      if (x.rank() != 3) refuse(where, op, "packed projections must have shape (B, T, (heads + 2 kv heads) size)", x);
      if (x[2] % all != 0)
        refuse(where, op, "the width of packed projections must divide by the heads of Q, K and V together", x,
               Shape{all});
      rounded_operands(in);
      f32(Shape{x[0], heads, x[1]});
      return x.with(2, x[2] / all * heads);
    }
    case Op::attention_gradient: rounded_operands(in); return in.shape(1);
    case Op::embedding: {
      in.indices(0);
      Shape const& table = in.shape(1);
      if (x.rank() != 2) refuse(where, op, "tokens must have shape (B, T), or (..., T) in embed", x);
      if (table.rank() != 2) refuse(where, op, "the table must have shape (V, C)", table);
      if (in.count() == 3) {
        in.same_dtype(1, 3);
        Shape const& positions = in.shape(2);
        if (positions.rank() != 2 || positions[1] != table[1] || positions[0] < x[1])
          refuse(where, op, "positions must have shape (T or more, C): shorter than the tokens' rows or of other width",
                 x, positions);
      }
      return appended(x, table[1]);
    }
    case Op::embedding_gradient: {
      std::int64_t const channels = last(in.shape(1));
      more.push_back({in.dtype(1), Replication::replicated, Shape{in.integer(1), channels}});
      if (in.count() == 3 && in.shape(2) != Shape{in.integer(0), channels})
        refuse(where, op, "the base must have the table's shape", in.shape(2), Shape{in.integer(0), channels});
      return Shape{in.integer(0), channels};
    }
    case Op::cross_entropy:
      in.floating(0);
      in.indices(1);
      if (x.rank() == 0 || leading(x) != in.shape(1))
        refuse(where, op, "logits (..., V) need targets (...): one target per row", x, in.shape(1));
      more.push_back(in[0]);
      f32(in.shape(1));
      return Shape{};
    case Op::linear_cross_entropy: {
      in.same_dtype(0, 2);
      in.floating(0);
      in.indices(2);
      rounded_operands(in);
      Shape const& w = in.shape(1);
      if (x.rank() == 0 || w.rank() != 2 || w[1] != last(x))
        refuse(where, op, "x (..., C) needs a weight (V, C): the last extents must be equal", x, w);
      if (in.integer(1) < 1 || in.integer(1) > w[0])
        refuse(where, op, "the vocabulary must be between 1 and the rows of the weight", w, Shape{in.integer(1)});
      if (leading(x) != in.shape(2))
        refuse(where, op, "x (..., C) needs targets (...): one target per row", x, in.shape(2));
      more.push_back(in[0]);
      more.push_back(in[1]);
      f32(in.shape(2));
      return Shape{};
    }
    case Op::square_sum:
      in.floating(0);
      if (in.count() == 2 && (in.shape(1).rank() != 0 || in.dtype(1) != DType::float64))
        refuse(where, op, "the sum so far must be a float64 scalar", in.dtype(1), DType::float64);
      return Shape{};
    case Op::adamw:
      in.same_shape(0, 4);
      in.scalars(4, 8);
      more.push_back(in[2]);
      more.push_back(in[3]);
      return x;
    default: return x;
  }
}

template <class Of>
constexpr Type function_type(Operands const& in) {
  if constexpr (requires { Of::type(in); }) {
    return Of::type(in);
  } else {
    in.same_dtype(0, Of::arity);
    in.same_shape(0, Of::arity);
    if (Of::floating) in.floating(0);
    return {in.dtype(0), {}, in.shape(0)};
  }
}

}  // namespace detail

template <std::same_as<Draft> D>
constexpr List<Type> infer(Graph const& graph, D const& draft, std::source_location where) {
  detail::Operands const in{graph, draft, where};
  Op const op = draft.op;
  OpInfo const& facts = info(op);
  if (op == Op::result) {
    Type const type = graph.type(draft.operands[0], static_cast<int>(draft.integers[0]));
    return {type};
  }
  if (op == Op::repeat) {  // checked by the function that closes the body; the types follow from the body's outputs
    Graph const& body = graph.bodies[static_cast<std::size_t>(draft.body)];
    List<Type> types;
    for (std::size_t i = 0; i < body.outputs.size(); ++i) {
      Type type = body.type(body.outputs[i].node);
      if (static_cast<std::int64_t>(i) >= draft.integers[1]) type.shape = with_first(draft.integers[0], type.shape);
      types.push_back(type);
    }
    return types;
  }
  if (facts.kind == OpClass::leaf && draft.operands.empty()) return {draft.type};

  List<Type> more;
  Type type = draft.type;
  if (op != Op::rng_bits) type.dtype = in.dtype(0);
  switch (op) {
    case Op::stop_gradient: case Op::barrier: case Op::vary: case Op::partial: case Op::all_reduce: case Op::broadcast:
    case Op::send_receive: type.shape = in.shape(0); break;
    case Op::broadcast_in_dim: {
      Shape const& x = in.shape(0);
      std::int64_t previous = -1;
      if (static_cast<int>(draft.integers.size()) != x.rank())
        refuse(where, op, "one axis of the result per axis of the operand is needed", x, type.shape);
      for (int axis = 0; axis < x.rank(); ++axis) {
        std::int64_t const to = in.integer(axis);
        if (to <= previous || to >= type.shape.rank() || (x[axis] != 1 && x[axis] != type.shape[static_cast<int>(to)]))
          refuse(where, op, "the operand does not broadcast to this shape: extents must be equal or 1", x, type.shape);
        previous = to;
      }
      break;
    }
    case Op::reshape:
      if (in.shape(0).size() != type.shape.size())
        refuse(where, op, "a reshape keeps the number of elements", in.shape(0), type.shape);
      break;
    case Op::transpose: {
      Shape const& x = in.shape(0);
      List<std::int64_t> extents;
      std::array<bool, Shape::max_rank> seen{};
      for (std::int64_t axis : draft.integers) {
        if (axis < 0 || axis >= x.rank() || seen[static_cast<std::size_t>(axis)])
          refuse(where, op, "a permutation names every axis of the operand once", x);
        seen[static_cast<std::size_t>(axis)] = true;
        extents.push_back(x[static_cast<int>(axis)]);
      }
      type.shape = Shape(extents);
      if (type.shape.rank() != x.rank()) refuse(where, op, "a permutation names every axis of the operand once", x);
      break;
    }
    case Op::slice: type.shape = detail::sliced(in); break;
    case Op::pad: type.shape = detail::padded(in); break;
    case Op::concatenate:
      type.shape = detail::concatenated(in);
      in.same_dtype(0, in.count());
      break;
    case Op::dynamic_slice: case Op::dynamic_update_slice: {
      bool const update = op == Op::dynamic_update_slice;
      Shape const &x = in.shape(0), &box = update ? in.shape(1) : type.shape;
      if (update) in.same_dtype(0, 2);
      if (in.count() - 1 - int{update} != x.rank() || box.rank() != x.rank())
        refuse(where, op, "one start per axis is needed, and as many axes in the slice", x, box);
      in.scalars(1 + int{update}, in.count());
      for (int axis = 0; axis < x.rank(); ++axis)
        if (box[axis] > x[axis]) refuse(where, op, "the slice is larger than the tensor", x, box);
      if (update) type.shape = x;
      break;
    }
    case Op::reduce_sum: case Op::reduce_max: type.shape = detail::reduced(in, draft.integers); break;
    case Op::dot_general:
      in.same_dtype(0, 2);
      in.floating(0);
      type.shape = detail::dot_result(in);
      detail::rounded_operands(in);
      break;
    case Op::gather:
      in.indices(1);
      if (in.shape(0).rank() == 0) refuse(where, op, "the table must have rows", in.shape(0));
      type.shape = in.shape(1);
      for (int axis = 1; axis < in.shape(0).rank(); ++axis) type.shape = appended(type.shape, in.shape(0)[axis]);
      break;
    case Op::scatter_add: {
      in.indices(1);
      in.same_dtype(0, 1);
      Shape rows = in.shape(1);
      for (int axis = 1; axis < in.shape(0).rank(); ++axis) rows = appended(rows, in.shape(0)[axis]);
      if (in.shape(2) != rows) refuse(where, op, "one row of the base's width per index is needed", in.shape(2), rows);
      type.shape = in.shape(0);
      break;
    }
    case Op::rng_bits:
      in.scalars(0, in.count());
      type.dtype = DType::uint32;
      break;
    case Op::custom: type = draft.custom->type(in); break;
    case Op::all_gather: type.shape = in.shape(0).with(0, in.shape(0)[0] * in.integer(0)); break;
    case Op::all_to_all:
      if (in.shape(0).rank() == 0 || in.shape(0)[0] % in.integer(0) != 0)
        refuse(where, op, "the first extent must divide by the number of ranks", in.shape(0), Shape{in.integer(0)});
      type.shape = in.shape(0);
      break;
    case Op::reduce_scatter:
      if (in.shape(0).rank() == 0 || in.shape(0)[0] % in.integer(0) != 0)
        refuse(where, op, "the first extent must divide by the number of ranks", in.shape(0), Shape{in.integer(0)});
      type.shape = in.shape(0).with(0, in.shape(0)[0] / in.integer(0));
      break;
    default:
      if (is_function(op)) {
        with_operation(op, [&]<class Of>() { type = detail::function_type<Of>(in); });
        break;
      }
      type.shape = detail::composite_shape(in, more);
      if (op == Op::embedding) type.dtype = in.dtype(1);
      if (op == Op::embedding_gradient) type.dtype = in.dtype(1);
      if (op == Op::square_sum) type.dtype = DType::float64;
      break;
  }
  if (facts.kind == OpClass::collective) {
    std::size_t const named = port_integers(op);
    MeshAxis const axis = draft.integers.size() > named ? static_cast<MeshAxis>(draft.integers[named]) : MeshAxis::data;
    bool const apart = op == Op::vary || op == Op::reduce_scatter || op == Op::all_to_all || op == Op::send_receive;
    type.replication = in[0].replication.with(axis, op == Op::partial ? Replication::partial
                                                    : apart           ? Replication::varying
                                                                      : Replication::replicated);
  } else {
    type.replication = detail::combined(in);
  }
  for (Type& other : more) other.replication = type.replication;
  List<Type> types{type};
  types.append(more);
  return types;
}

}  // namespace tutti::graph
