// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The layer loop: a block is traced once, into the body of one node, and runs over stacked parameters.

#include <tutti/graph/param.hpp>

#include <concepts>

namespace tutti::graph {

/// Traces a body. Values of the outer graph may be used in it: they become invariants.
class RepeatTrace {
 public:
  constexpr RepeatTrace(Builder& outer, Var first, std::int64_t length, Where where)
      : outer_(outer), body_(&outer), length_(length), where_(where) {
    if (length < 0) refuse(where, Op::repeat, ErrorKind::invalid_argument, "the number of iterations is negative");
    first_ = outer.adopt(first, where);
    carried_ = body_.input("x", first.dtype(), first.shape(), first.type().replication, where);
  }

  /// The value that goes from iteration to iteration.
  constexpr Var carried() const { return carried_; }
  /// Iteration i sees element i along the first axis.
  constexpr Var slice(Var stacked, std::string_view name) {
    Id const id = outer_.adopt(stacked, where_);
    Type const type = outer_.graph().type(id);
    if (type.shape.rank() == 0 || type.shape[0] != length_)
      refuse(where_, Op::repeat, "a stacked operand needs one element per iteration along its first axis", type.shape,
             Shape{length_});
    stacked_.push_back(id);
    Var const inner = body_.input(name, type.dtype, without_first(type.shape), type.replication, where_);
    slices_.push_back(inner.id);
    return inner;
  }
  /// Closes the body; the value after the last iteration.
  constexpr Var finish(Var next) {
    Id const out = body_.adopt(next, where_);
    Type const wanted = body_.graph().type(carried_.id), got = body_.graph().type(out);
    if (wanted.shape != got.shape)
      refuse(where_, Op::repeat, "the body must return a value of the shape that it takes", wanted.shape, got.shape);
    if (wanted.dtype != got.dtype)
      refuse(where_, Op::repeat, "the body must return a value of the dtype that it takes", wanted.dtype, got.dtype);
    if (wanted.replication != got.replication)
      refuse(where_, Op::repeat, ErrorKind::communication,
             "the body's result is not replicated as its argument is; pass vary(x), or all_reduce the result");
    body_.output("next", Var{&body_, out}, where_);
    List<Id> inputs{carried_.id}, operands{first_};
    for (Id id : body_.captured_inputs()) inputs.push_back(id);
    for (Id id : slices_) inputs.push_back(id);
    for (Id id : body_.captured()) operands.push_back(id);
    for (Id id : stacked_) operands.push_back(id);
    body_.order_inputs(std::move(inputs));
    Draft wanted_node =
        draft(Op::repeat, std::move(operands),
              {length_, 1, static_cast<std::int64_t>(body_.captured().size()),
               static_cast<std::int64_t>(slices_.size()), 0, static_cast<std::int64_t>(Recompute::none)});
    wanted_node.body = outer_.add_body(canonical(body_.graph()));
    return detail::result(detail::emit(outer_, std::move(wanted_node), where_), 0, where_);
  }

 private:
  Builder& outer_;
  Builder body_;
  std::int64_t length_;
  Where where_;
  Id first_ = none;
  Var carried_;
  List<Id> stacked_, slices_;
};

/// x after f(block i, x), or f(block i, x, i) with i an int64 (), for every block of the stack in turn. f runs once, to
/// be traced; it may use outer values.
template <class Block, class F>
constexpr Var repeat(Stack<Block> const& blocks, Var x, F&& f, Where where = Where::current()) {
  RepeatTrace body(detail::home(x, where), x, blocks.length, where);
  Block block = blocks.block;
  for_each_parameter(
      block, [&](std::string_view name, Param& param, std::int64_t) { param.var = body.slice(param.var, name); });
  if constexpr (std::invocable<F&, Block const&, Var, Var>) {
    Var const layer = body.slice(iota(detail::home(x, where), {blocks.length}, 0, DType::int64, where), "layer");
    return body.finish(f(static_cast<Block const&>(block), body.carried(), layer));
  } else {
    return body.finish(f(static_cast<Block const&>(block), body.carried()));
  }
}

}  // namespace tutti::graph
