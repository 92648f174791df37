// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Primitives that address by value, random bits, and collectives.

#include <tutti/graph/ops.hpp>

namespace tutti::graph {

namespace detail {
constexpr Var with_starts(Op op, List<Var> const& operands, Type const& type, Where where) {
  Builder* builder = nullptr;
  for (Var v : operands) builder = &home(v, Var{builder, none}, {}, where);
  List<Id> ids;
  for (Var v : operands) ids.push_back(builder->adopt(v, where));
  return emit(*builder, draft(op, std::move(ids), {}, {}, type), where);
}
}  // namespace detail

/// The box of `sizes` at `starts`, integers (); starts are clamped so that it fits.
constexpr Var dynamic_slice(Var x, List<Var> const& starts, Shape const& sizes, Where where = Where::current()) {
  List<Var> operands{x};
  operands.append(starts.begin(), starts.end());
  return detail::with_starts(Op::dynamic_slice, operands, {x.dtype(where), {}, sizes}, where);
}
/// x with the box at `starts` replaced.
constexpr Var dynamic_update_slice(Var x, Var update, List<Var> const& starts, Where where = Where::current()) {
  List<Var> operands{x, update};
  operands.append(starts.begin(), starts.end());
  return detail::with_starts(Op::dynamic_update_slice, operands, {}, where);
}
/// Rows of the table, (indices..., row...).
constexpr Var gather(Var table, Var indices, Where where = Where::current()) {
  return detail::with_starts(Op::gather, {table, indices}, {}, where);
}
/// base with every row added at its index; in index order.
constexpr Var scatter_add(Var base, Var indices, Var rows, Where where = Where::current()) {
  return detail::with_starts(Op::scatter_add, {base, indices, rows}, {}, where);
}
/// Random uint32 that depend on the three integers () and the position alone, never on ranks, threads or device.
constexpr Var rng_bits(Shape const& shape, Var seed, Var step, Var stream, Where where = Where::current()) {
  return detail::with_starts(Op::rng_bits, {seed, step, stream}, {DType::uint32, {}, shape}, where);
}
/// The part of an endless row of such numbers that begins at position `first`, an integer () too.
constexpr Var rng_bits(Shape const& shape, Var seed, Var step, Var stream, Var first,
                       Where where = Where::current()) {
  return detail::with_starts(Op::rng_bits, {seed, step, stream, first}, {DType::uint32, {}, shape}, where);
}

constexpr Var rank_number(Builder& builder, MeshAxis axis, Where where = Where::current()) {
  Type const type{DType::int32, Replications().with(axis, Replication::varying), {}};
  return detail::emit(builder, draft(Op::rank, {}, along(axis, {}), {}, type), where);
}
constexpr Var rank_number(Builder& builder, Where where = Where::current()) {
  return rank_number(builder, MeshAxis::data, where);
}

/// What crosses ranks does so along one axis of the mesh: that of data, where none is given.

/// A replicated value, used by each rank on its own from here on; the gradient is reduced with `op`: `sum` where the
/// loss adds up over ranks, `avg` where it is the average of the ranks' losses. Mixing replicated and varying values
/// does this by itself, with `avg`.
constexpr Var vary(Var x, MeshAxis axis, comm::PortOp op = comm::PortOp::sum, Where where = Where::current()) {
  if (x.type(where).replication[axis] == Replication::varying || detail::constant_value(x)) return x;
  return detail::emit(detail::home(x, where), draft(Op::vary, {x.id}, along(axis, {static_cast<std::int64_t>(op)})),
                      where);
}
constexpr Var vary(Var x, comm::PortOp op = comm::PortOp::sum, Where where = Where::current()) {
  return vary(x, MeshAxis::data, op, where);
}
/// This rank's addend of a sum that `all_reduce` or `reduce_scatter` will make; anything not linear refuses it.
constexpr Var partial(Var x, MeshAxis axis, Where where = Where::current()) {
  return detail::emit(detail::home(x, where), draft(Op::partial, {x.id}, along(axis, {})), where);
}
constexpr Var partial(Var x, Where where = Where::current()) { return partial(x, MeshAxis::data, where); }

/// sum or avg over ranks; the result is replicated. A replicated value that met a varying one counts as under a loss
/// that is averaged over the ranks: where the sum itself is the loss, as in all_reduce(sum(x * d)) / all_reduce(n), say
/// vary(x) first, or the gradient of x is divided by the number of ranks.
constexpr Var all_reduce(Var x, MeshAxis axis, comm::PortOp op = comm::PortOp::sum, Where where = Where::current()) {
  if (op != comm::PortOp::sum && op != comm::PortOp::avg)
    refuse(where, Op::all_reduce, ErrorKind::invalid_argument,
           "graphs reduce by sum and avg alone: others have no gradient");
  if (x.type(where).replication[axis] == Replication::replicated && !detail::constant_value(x))
    refuse(where, Op::all_reduce, ErrorKind::communication,
           "the value counts as equal on all ranks, as inputs do unless they are declared varying; pass vary(x) to "
           "mean each rank's own");
  return detail::emit(detail::home(x, where),
                      draft(Op::all_reduce, {x.id}, along(axis, {static_cast<std::int64_t>(op)})), where);
}
constexpr Var all_reduce(Var x, comm::PortOp op = comm::PortOp::sum, Where where = Where::current()) {
  return all_reduce(x, MeshAxis::data, op, where);
}
/// root's value on every rank.
constexpr Var broadcast(Var x, MeshAxis axis, int root, Where where = Where::current()) {
  return detail::emit(detail::home(x, where), draft(Op::broadcast, {x.id}, along(axis, {root})), where);
}
constexpr Var broadcast(Var x, int root, Where where = Where::current()) {
  return broadcast(x, MeshAxis::data, root, where);
}
/// Every rank's rows one after another: (N, ...) -> (ranks * N, ...).
constexpr Var all_gather(Var x, MeshAxis axis, int ranks, Gathering gathering, Where where = Where::current()) {
  if (x.rank(where) == 0)
    refuse(where, Op::all_gather, "a scalar has no rows to gather; reshape it to (1,)", x.shape());
  List<std::int64_t> integers = along(axis, {ranks});
  if (gathering.bits() != 0) integers = {ranks, static_cast<std::int64_t>(axis), gathering.bits()};
  return detail::emit(detail::home(x, where), draft(Op::all_gather, {x.id}, std::move(integers)), where);
}
constexpr Var all_gather(Var x, MeshAxis axis, int ranks, Where where = Where::current()) {
  return all_gather(x, axis, ranks, Gathering(), where);
}
constexpr Var all_gather(Var x, int ranks, Where where = Where::current()) {
  return all_gather(x, MeshAxis::data, ranks, where);
}
/// This rank's rows of the reduction: (ranks * N, ...) -> (N, ...).
constexpr Var reduce_scatter(Var x, MeshAxis axis, int ranks, comm::PortOp op = comm::PortOp::sum,
                             Where where = Where::current()) {
  return detail::emit(detail::home(x, where),
                      draft(Op::reduce_scatter, {x.id}, along(axis, {ranks, static_cast<std::int64_t>(op)})), where);
}
constexpr Var reduce_scatter(Var x, int ranks, comm::PortOp op = comm::PortOp::sum, Where where = Where::current()) {
  return reduce_scatter(x, MeshAxis::data, ranks, op, where);
}
namespace detail {
/// What goes to others must be each rank's own: of an addend of a pending sum a part is no addend of any.
constexpr Var sent(Var x, MeshAxis axis, Op op, Where where) {
  if (x.type(where).replication[axis] == Replication::partial)
    refuse(where, op, ErrorKind::communication,
           "the value is an addend of a sum that is still to be made. Say all_reduce first");
  return vary(x, axis, comm::PortOp::avg, where);
}
}  // namespace detail
/// Rows r N to (r + 1) N go to rank r, where they are those of this rank's number: (ranks * N, ...) -> the same. Its
/// own gradient.
constexpr Var all_to_all(Var x, MeshAxis axis, int ranks, Where where = Where::current()) {
  return detail::emit(detail::home(x, where),
                      draft(Op::all_to_all, {detail::sent(x, axis, Op::all_to_all, where).id}, along(axis, {ranks})),
                      where);
}
constexpr Var all_to_all(Var x, int ranks, Where where = Where::current()) {
  return all_to_all(x, MeshAxis::data, ranks, where);
}
/// Sends x to rank + by, and is what rank - by sent: zeros, where there is no such rank. `wraps`: ranks are a ring, in
/// which there always is one. The gradient goes the other way.
constexpr Var send_receive(Var x, MeshAxis axis, int ranks, int by, bool wraps = true, Where where = Where::current()) {
  return detail::emit(detail::home(x, where),
                      draft(Op::send_receive, {detail::sent(x, axis, Op::send_receive, where).id},
                            along(axis, {ranks, by, std::int64_t{wraps}})),
                      where);
}
constexpr Var send_receive(Var x, int ranks, int by, bool wraps = true, Where where = Where::current()) {
  return send_receive(x, MeshAxis::data, ranks, by, wraps, where);
}

}  // namespace tutti::graph
