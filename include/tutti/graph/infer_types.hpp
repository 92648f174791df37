// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The switch over operations that infer.hpp's pieces serve: types of the results of a draft.

#include <tutti/graph/infer.hpp>
#include <tutti/graph/infer_composites.hpp>  // NOLINT(misc-header-include-cycle)
#include <tutti/graph/op/table.hpp>  // NOLINT(misc-header-include-cycle)

#include <span>

namespace tutti::graph {

namespace detail {

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
