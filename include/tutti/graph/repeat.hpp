// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Loops: a body is traced once, into one node, and runs over stacked parameters (`repeat`) or over time (`scan`).

#include <tutti/graph/param.hpp>

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

namespace detail {
/// A replicated value, as each rank's own from here on; also a constant, of which `vary` knows that it needs none.
constexpr Var each_ranks_own(Builder& builder, Id replicated, MeshAxis axis, Where where) {
  auto const reduction = static_cast<std::int64_t>(gradient_reduction(axis));
  return emit(builder, draft(Op::vary, {replicated}, along(axis, {reduction})), where);
}
}  // namespace detail

/// What a loop leaves behind: the carried values after the last iteration, and what every iteration gave, stacked
/// (length, ...).
struct Scanned {
  List<Var> carried, outputs;
};

/// Traces the body of a loop by hand: `carry` and `slice` give the values that an iteration sees, `finish` closes the
/// body. Values of the outer graph may be used in it: they become invariants. `scan` and `repeat` do this for most.
class Scan {
 public:
  /// `reversed`: from the last iteration to the first; elements and outputs stay in their places.
  constexpr Scan(Builder& outer, std::int64_t length, bool reversed = false, Where where = Where::current())
      : outer_(outer), body_(&outer), length_(length), reversed_(reversed), where_(where) {
    if (length < 0) refuse(where, Op::repeat, ErrorKind::invalid_argument, "the number of iterations is negative");
  }
  constexpr Scan(Builder& outer, Var first, std::int64_t length, Where where) : Scan(outer, length, false, where) {
    carry(first);
  }

  /// A value that goes from iteration to iteration, `first` at the beginning.
  constexpr Var carry(Var first) {
    first_.push_back(outer_.adopt(first, where_));
    reflect::Path name("x");
    if (first_.size() > 1) name.append(static_cast<int>(first_.size() - 1));
    carried_.push_back(body_.input(name, first.dtype(), first.shape(), first.type().replication, where_));
    return carried_.back();
  }
  constexpr Var carried(std::size_t i = 0) const { return carried_[i]; }
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
  /// Closes the body: `next` are the carried values for the next iteration, of the types of those that `carry` gave.
  constexpr Scanned finish(List<Var> const& next, List<Var> const& outputs) {
    if (next.size() != first_.size() || first_.empty())
      refuse(where_, Op::repeat, ErrorKind::invalid_argument,
             "the body must return as many carried values as it takes, at least one: " + std::to_string(next.size()) +
                 " for " + std::to_string(first_.size()));
    for (std::size_t i = 0; i < next.size(); ++i)
      body_.output(name_of("next", i), Var{&body_, checked(carried_[i].id, next[i])}, where_);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      body_.output(name_of("output", i + 1), Var{&body_, body_.adopt(outputs[i], where_)}, where_);
    List<Id> inputs, operands = first_;
    for (Var v : carried_) inputs.push_back(v.id);
    for (Id id : body_.captured_inputs()) inputs.push_back(id);
    for (Id id : slices_) inputs.push_back(id);
    for (Id id : body_.captured()) operands.push_back(id);
    for (Id id : stacked_) operands.push_back(id);
    body_.order_inputs(std::move(inputs));
    Draft wanted_node =
        draft(Op::repeat, std::move(operands),
              {length_, static_cast<std::int64_t>(first_.size()), static_cast<std::int64_t>(body_.captured().size()),
               static_cast<std::int64_t>(slices_.size()), std::int64_t{reversed_},
               static_cast<std::int64_t>(Recompute::none)});
    wanted_node.body = outer_.add_body(canonical(body_.graph()));
    Var const node = detail::emit(outer_, std::move(wanted_node), where_);
    Scanned result;
    for (std::size_t i = 0; i < next.size() + outputs.size(); ++i)
      (i < next.size() ? result.carried : result.outputs)
          .push_back(detail::result(node, static_cast<int>(i), where_));
    return result;
  }
  /// The one carried value after the last iteration.
  constexpr Var finish(Var next) { return finish({next}, {}).carried[0]; }

 private:
  static constexpr reflect::Path name_of(std::string_view what, std::size_t i) {
    reflect::Path name(what);
    if (i > 0) name.append(static_cast<int>(i));
    return name;
  }
  constexpr Id checked(Id carried, Var next) {
    Id out = body_.adopt(next, where_);
    Type const wanted = body_.graph().type(carried), got = body_.graph().type(out);
    if (wanted.shape != got.shape)
      refuse(where_, Op::repeat, "the body must return a value of the shape that it takes", wanted.shape, got.shape);
    if (wanted.dtype != got.dtype)
      refuse(where_, Op::repeat, "the body must return a value of the dtype that it takes", wanted.dtype, got.dtype);
    // What is the same on all ranks may go on as each rank's own; the other way round is the caller's to say.
    for (int i = 0; i < mesh_axes; ++i)
      if (auto const axis = static_cast<MeshAxis>(i);
          wanted.replication[axis] == Replication::varying && got.replication[axis] == Replication::replicated)
        out = detail::each_ranks_own(body_, out, axis, where_).id;
    if (wanted.replication != body_.graph().type(out).replication)
      refuse(where_, Op::repeat, ErrorKind::communication,
             "the body's result is not replicated as its argument is; pass vary(x), or all_reduce the result");
    return out;
  }

  Builder& outer_;
  Builder body_;
  std::int64_t length_;
  bool reversed_;
  Where where_;
  List<Id> first_, stacked_, slices_;
  List<Var> carried_;
};

/// What the body of `scan` returns: the carried values for the next iteration, and what is kept of this one.
struct ScanStep {
  List<Var> next, outputs{};
};

/// A loop over time: f(carried, elements) is traced once and runs for every element along the first axis of
/// `sequences`, all of one length; `first` are the carried values before. Its outputs come back stacked. The gradient
/// runs the other way through time. With `reversed`, from the last element to the first. Where a sequence varies over
/// ranks, so do the carried values from the start, as `vary(first, avg)`.
/// Errors: shape, dtype, where f does not return what it takes; invalid_argument, without a sequence or a carried
/// value.
template <class F>
constexpr Scanned scan(List<Var> const& first, List<Var> const& sequences, F&& f, bool reversed = false,
                       Where where = Where::current()) {
  if (first.empty() || sequences.empty() || sequences[0].rank(where) == 0)
    refuse(where, "scan", ErrorKind::invalid_argument,
           "a scan needs a carried value and a sequence, whose first axis is time");
  Builder* home = &detail::home(first[0], where);  // the innermost: what is outside of it becomes an invariant
  for (List<Var> const* list : {&first, &sequences})
    for (Var v : *list)
      if (Builder& other = detail::home(v, where); other.depth() > home->depth()) home = &other;
  Scan body(*home, sequences[0].shape()[0], reversed, where);
  List<Var> carried, elements;
  bool varies = false;
  for (Var v : sequences) varies = varies || v.type(where).replication[MeshAxis::data] == Replication::varying;
  for (Var v : first) {  // zeros, or what is learned, before every rank's own sequence
    Var const here{home, home->adopt(v, where)};
    bool const own = varies && here.type().replication[MeshAxis::data] == Replication::replicated;
    carried.push_back(body.carry(own ? detail::each_ranks_own(*home, here.id, MeshAxis::data, where) : here));
  }
  for (std::size_t i = 0; i < sequences.size(); ++i)
    elements.push_back(body.slice(sequences[i], reflect::Path("element.").append(static_cast<int>(i))));
  ScanStep const step = f(static_cast<List<Var> const&>(carried), static_cast<List<Var> const&>(elements));
  return body.finish(step.next, step.outputs);
}

/// x after f(block i, x), or f(block i, x, i) with i an int64 (), for every block of the stack in turn. f runs once, to
/// be traced; it may use outer values.
template <class Block, class F>
constexpr Var repeat(Stack<Block> const& blocks, Var x, F&& f, Where where = Where::current()) {
  Scan body(detail::home(x, where), x, blocks.length, where);
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
