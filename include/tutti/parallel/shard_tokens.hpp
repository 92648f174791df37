// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Sequence parallelism: what stands between the divided products of a model is, token by token, the same work, and
/// each rank of the tensor axis does it for its share of a micro-step's tokens. The sum behind a product becomes a
/// reduce_scatter, and before the next divided one its input is gathered. For parallel/shard.hpp.
/// Source  Korthikanti et al. 2022 (arXiv 2205.05198), whose g-bar and g these two are

#include <tutti/graph/composites.hpp>
#include <tutti/parallel/shard_values.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::parallel::detail {

/// Operations on tokens of which each rank has a share (Split::tokens). One after another these are a run of the
/// micro-step's tokens, whatever sequence they are of, so that collectives move whole rows as they lie in memory.
class ShardTokens : protected ShardValues {
 protected:
  using ShardValues::ShardValues;

  /// The split of a whole value of this shape whose first axes, up to `axis`, are those of tokens.
  /// Errors: configuration, in figures.
  Split tokens_of(Id id, Shape const& whole, int axis) const {
    std::int64_t const count = leading(whole, axis + 1);
    if (count % ranks_ != 0)
      throw Error(ErrorKind::configuration, "sequence parallelism",
                  concat("the ", count, " tokens of a micro-step do not divide among ", ranks_,
                         " ranks of the tensor axis (", from_.file(id), ":", std::to_string(from_[id].line),
                         "). Use sequences of a length that they divide"));
    return {axis, {count}, true};
  }
  static std::int64_t leading(Shape const& shape, int axes) {
    std::int64_t count = 1;
    for (int axis = 0; axis < axes; ++axis) count *= shape[axis];
    return count;
  }
  /// Rows of tokens, one behind the other, from and to the shape in which operations have them.
  static graph::Var flat(graph::Var x, Split const& split) {
    List<std::int64_t> extents{leading(x.shape(), split.axis + 1)};
    for (int axis = split.axis + 1; axis < x.shape().rank(); ++axis) extents.push_back(x.shape()[axis]);
    return graph::reshape(x, Shape(extents));
  }
  /// All tokens, from every rank's share.
  graph::Var gathered(Id id) {
    graph::Var const all = graph::all_gather(flat(var(id), split(id)), tensor, ranks_, {.again = true});
    return graph::reshape(all, from_.shape(id));
  }
  /// This rank's share of the sum of addends that all ranks have.
  graph::Var scattered(Id addend, Split const& tokens) {
    graph::Var const whole{&to_, addend};
    graph::Var const sum = graph::reduce_scatter(graph::partial(flat(whole, tokens), tensor), tensor, ranks_);
    return graph::reshape(sum, part_of(whole.shape(), tokens, ranks_));
  }
  /// This rank's share of what every rank has.
  graph::Var share(graph::Var whole, Split const& tokens) {
    graph::Var const rows = flat({&to_, own_use(whole.id)}, tokens);
    Shape const mine = rows.shape().with(0, rows.shape()[0] / ranks_);
    List<graph::Var> starts{graph::rank_number(to_, tensor) * static_cast<double>(mine[0])};
    for (int axis = 1; axis < mine.rank(); ++axis)
      starts.push_back(graph::constant(to_, 0, {}, DType::int32));
    return graph::reshape(graph::dynamic_slice(rows, starts, mine), part_of(whole.shape(), tokens, ranks_));
  }

  /// Does the operation on every rank's share of tokens where it can be done so, and where an operand is one; else
  /// `whole()`, with operands that are not shares. False: no operand is one.
  template <class F>
  bool by_tokens(Id id, F&& whole) {
    if (from_.op(id) == Op::embedding && from_.shape(operand(id, 0)).rank() == 2) return embed_share(id), true;
    Split const* shares = nullptr;
    bool other = false;
    for (Id operand : from_.operands(id)) {
      Split const& one = split(operand);
      other = other || (one.divided() && !one.tokens);
      if (one.tokens) shares = &one;
    }
    if (shares == nullptr) return false;
    Split const tokens = *shares;
    if (other || !done_on_share(id, tokens)) with_whole(id, whole);
    return true;
  }
  /// f() with all tokens in the place of shares.
  template <class F>
  void with_whole(Id id, F&& f) {
    List<std::pair<Id, Value>> shares;
    for (Id operand : from_.operands(id))
      if (split(operand).tokens) {
        Id const all = gathered(operand).id;
        shares.push_back({operand, value(operand)});
        values_[at(operand)] = {all, {{}}};
      }
    f();
    for (auto& [operand, value] : shares) values_[at(operand)] = std::move(value);
  }
  /// What is carried through a loop, or goes out of it, as a share.
  Id as_share(Id id, Split const& tokens) { return split(id).tokens ? value(id).id : share(var(id), tokens).id; }

 private:
  bool done_on_share(Id id, Split const& tokens) {
    Op const op = from_.op(id);
    Shape const& before = from_.shape(operand(id, 0));
    Shape const& after = from_.shape(id);
    if (graph::info(op).kind == graph::OpClass::elementwise || op == Op::swiglu) {
      List<Id> shares;
      for (Id operand : from_.operands(id)) shares.push_back(own(operand, tokens));
      return emit(id, std::move(shares), tokens), true;
    }
    if (!split(operand(id, 0)).tokens) return false;
    switch (op) {
      case Op::layer_norm: case Op::rms_norm:
        if (tokens.axis + 1 >= before.rank()) return false;
        return set(id, made(id, operands(id), integers(id), tokens), {tokens, tokens, tokens}), true;
      case Op::linear:
        if (tokens.axis + 1 >= before.rank()) return false;
        return emit(id, operands(id), tokens), true;
      case Op::dropout: return drop(id, tokens), true;
      case Op::concatenate:
        if (from_.integer(id) <= tokens.axis) return false;
        for (Id operand : from_.operands(id))
          if (!split(operand).tokens) return false;
        return emit(id, operands(id), tokens), true;
      case Op::reshape: {
        for (int axis = 0; axis < after.rank(); ++axis)
          if (leading(after, axis + 1) == tokens.length() && (axis + 1 == after.rank() || after[axis + 1] != 1))
            return emit(id, operands(id), {axis, tokens.sections, true}), true;
        return false;
      }
      case Op::broadcast_in_dim: {
        auto const axes = from_.integers(id);
        for (int axis = 0; axis <= tokens.axis; ++axis)
          if (axes[at(axis)] != axis || before[axis] != after[axis]) return false;
        return emit(id, operands(id), tokens), true;
      }
      case Op::reduce_sum: case Op::reduce_max: {
        auto const axes = from_.integers(id);
        if (!axes.empty() && axes[0] > tokens.axis) return emit(id, operands(id), tokens), true;
        int summed = 0;
        for (std::int64_t axis : axes) summed += axis <= tokens.axis ? 1 : 0;
        if (op != Op::reduce_sum || summed != tokens.axis + 1) return false;
        return set(id, joined(made(id, operands(id), integers(id), {})).id), true;
      }
      default: return false;
    }
  }
  /// An operand as this rank's share of it.
  Id own(Id id, Split const& tokens) {
    if (split(id).tokens || from_.shape(id).rank() == 0) return value(id).id;
    bool even = true;
    for (int axis = 0; axis <= tokens.axis; ++axis) even = even && is_even(id, axis);
    return even ? part_of_even(id, tokens) : share(var(id), tokens).id;
  }
  /// The mask of one rank: elements of a share are numbered from where it begins.
  void drop(Id id, Split const& tokens) {
    List<Id> with = operands(id);
    graph::Var const place = graph::convert(graph::rank_number(to_, tensor), DType::int64);
    auto const size = static_cast<double>(from_.shape(id).size() / ranks_);
    with[4] = (var(operand(id, 4)) + place * size).id;
    emit(id, std::move(with), tokens);
  }
  /// Rows by this rank's tokens; of a table that is divided by all tokens, as addends.
  void embed_share(Id id) {
    require_whole(id, 2);
    Shape const& tokens = from_.shape(operand(id, 0));
    Split const mine = tokens_of(id, from_.shape(id), 1);
    auto const own_tokens = [&] {
      return split(operand(id, 0)).tokens ? var(operand(id, 0)) : share(var(operand(id, 0)), {1, mine.sections, true});
    };
    graph::Var rows;
    if (Split const table = split(operand(id, 1)); !table.divided()) {
      rows = graph::embed(var(operand(id, 1)), own_tokens());
    } else {
      if (table.axis != 0 || table.sections.size() != 1) refuse_split(id, table);
      graph::Var const all = split(operand(id, 0)).tokens ? gathered(operand(id, 0)) : var(operand(id, 0));
      rows = scattered(embedding_addends(all, var(operand(id, 1))).id, mine);
    }
    if (from_.operands(id).size() == 3) {
      graph::Var const place = graph::iota(to_, {tokens[1]}, 0, DType::int32);
      graph::Var const places = share(graph::broadcast_in_dim(place, tokens, {1}), {1, mine.sections, true});
      rows = rows + graph::embed(var(operand(id, 2)), places);
    }
    set(id, rows.id, {mine});
  }
};

}  // namespace tutti::parallel::detail
