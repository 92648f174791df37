// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What operations make of operands of which each rank of the tensor axis has a part; for parallel/shard.hpp.

#include <tutti/graph/composites.hpp>
#include <tutti/parallel/shard_tokens.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tutti::parallel::detail {

/// One graph or body, rewritten into a builder, node by node.
class ShardOperations : protected ShardTokens {
 public:
  using ShardTokens::ShardTokens;

 protected:
  /// All operands are divided alike.
  void elementwise(Id id, Split const& split) {
    List<Id> parts_of;
    for (Id operand : from_.operands(id)) parts_of.push_back(localised(id, operand, split));
    emit(id, std::move(parts_of), split);
  }
  /// A node of operands that are not all whole.
  void divide(Id id) {
    if (shares_tokens_ && by_tokens(id, [&] { is_divided(id) ? divide(id) : emit(id, operands(id), {}); })) return;
    Op const op = from_.op(id);
    graph::OpClass const kind = graph::info(op).kind;
    Split const x = split(operand(id, 0));
    int const last = from_.shape(operand(id, 0)).rank() - 1;
    if (kind == graph::OpClass::elementwise || op == Op::swiglu) return elementwise(id, first_split(id));
    if (kind == graph::OpClass::collective) {
      bool const rows = op == Op::all_gather || op == Op::reduce_scatter || op == Op::all_to_all;
      if (rows && x.axis == 0) refuse_split(id, x);
      return emit(id, operands(id), x);
    }
    switch (op) {
      case Op::linear: return linear(id);
      case Op::attention: return attention(id);
      case Op::rotary: return rotary(id, x);
      case Op::layer_norm: case Op::rms_norm:
        require_whole(id, 1);
        if (x.axis == last) refuse_split(id, x);
        return set(id, made(id, operands(id), integers(id), x), {x, x, x});
      case Op::cumsum:
        if (from_.integer(id) == x.axis) refuse_split(id, x);
        return emit(id, operands(id), x);
      case Op::slice: return slice(id, x);
      case Op::concatenate: return concatenate(id);
      case Op::reshape: return reshape(id, x);
      case Op::transpose: {
        Split turned = x;
        auto const axes = from_.integers(id);
        for (std::size_t i = 0; i < axes.size(); ++i)
          if (axes[i] == x.axis) turned.axis = static_cast<int>(i);
        return emit(id, operands(id), turned);
      }
      case Op::broadcast_in_dim: {
        Split wider = x;
        wider.axis = static_cast<int>(from_.integers(id)[at(x.axis)]);
        return emit(id, operands(id), wider);
      }
      case Op::reduce_sum: case Op::reduce_max: return reduce(id, x);
      case Op::dot_general: return dot(id);
      case Op::embedding: return embedding(id);
      case Op::cross_entropy: return cross_entropy(id, x);
      case Op::linear_cross_entropy: return linear_cross_entropy(id);
      case Op::dropout:
        if (from_.real(id) == 0) return emit(id, operands(id), x);
        refuse(id, "draws a mask for each rank's part, which would not be that of one rank alone. Leave out dropout "
                   "where values are divided");
      default: refuse_split(id, first_split(id));
    }
  }

  /// By rows of the weight: a part of the result. By columns: an addend of it.
  void linear(Id id) {
    Split const x = split(operand(id, 0)), w = split(operand(id, 1));
    int const rank = from_.shape(id).rank();
    bool const biased = from_.operands(id).size() == 3, x_by_columns = x.axis == rank - 1;
    if (!w.divided()) {
      require_whole(id, 1);
      if (x_by_columns)
        refuse(id, concat("multiplies parts of its input's columns with ", whole_name(operand(id, 1)),
                          ". Divide that along axis 1"));
      return emit(id, operands(id), x);
    }
    if (w.axis == 0) {
      if (x.divided())
        refuse(id, "multiplies an input of which each rank has a part with a weight that is divided along axis 0. "
                   "Divide one of them otherwise");
      Split const rows{rank - 1, w.sections};
      List<Id> of{value(operand(id, 0)).id, value(operand(id, 1)).id};
      if (biased) of.push_back(localised(id, operand(id, 2), {0, w.sections}));
      return emit(id, std::move(of), rows);
    }
    if (!x_by_columns || !(x.sections == w.sections))
      refuse(id, "multiplies a weight that is divided along axis 1 with an input that is not divided like it. Divide "
                 "what makes the input along its rows, or leave the weight whole");
    Id const addend = made(id, {value(operand(id, 0)).id, value(operand(id, 1)).id}, integers(id), {});
    Split const left = shares_tokens_ && rank > 1 ? tokens_of(id, from_.shape(id), rank - 2) : Split{};
    graph::Var sum = left.tokens ? scattered(addend, left) : joined(addend);
    if (biased) {
      require_whole(id, 2);
      graph::Var const bias = left.tokens ? graph::Var{&to_, own_use(value(operand(id, 2)).id)} : var(operand(id, 2));
      sum = sum + broadcast_in_dim(bias, sum.shape(), {rank - 1});
    }
    set(id, sum.id, {left});
  }
  std::string whole_name(Id id) const {
    return from_[id].name != graph::none ? concat("'", from_.name(id), "', which is whole") : "one that is whole";
  }

  [[noreturn]] void refuse_heads(Id id, std::string const& heads) const {
    throw Error(ErrorKind::configuration, "tensor parallelism",
                concat(heads, " do not divide among ", ranks_, " ranks of the tensor axis (", from_.file(id), ":",
                       std::to_string(from_[id].line), "). Use a number of ranks that divides them"));
  }
  void attention(Id id) {
    Split const x = split(operand(id, 0));
    std::int64_t const heads = from_.integer(id, 0), kv_heads = from_.integer(id, 1);
    std::int64_t const size = from_.shape(operand(id, 0))[2] / (heads + 2 * kv_heads);
    if (x.axis == 0) return set(id, made(id, operands(id), integers(id), x), {x, x});
    if (heads % ranks_ != 0 || kv_heads % ranks_ != 0)
      refuse_heads(id, concat(heads, " heads", kv_heads == heads ? std::string() : concat(" and ", kv_heads,
                              " of keys and values")));
    if (x.axis != 2 || !(x.sections == List<std::int64_t>{heads * size, kv_heads * size, kv_heads * size}))
      refuse(id, "needs its packed projections divided by whole heads: all of Q, then K, then V, each by itself. Give "
                 "the rule of their weight three sections");
    List<std::int64_t> local = integers(id);
    local[0] /= ranks_;
    local[1] /= ranks_;
    set(id, made(id, operands(id), std::move(local), {2, {heads * size}}), {{2, {heads * size}}, {1, {heads}}});
  }
  void rotary(Id id, Split const& x) {
    require_whole(id, 1);
    int const rank = from_.shape(id).rank();
    if (x.axis == rank - 2) refuse_split(id, x);
    std::int64_t const size = 2 * from_.shape(operand(id, 1))[1];
    for (std::int64_t section : x.sections)
      if (x.axis == rank - 1 && section / ranks_ % size != 0) refuse_heads(id, concat(section / size, " heads"));
    emit(id, operands(id), x);
  }

  void embedding(Id id) {
    Split const table = split(operand(id, 1));
    if (table.axis != 0 || table.sections.size() != 1) refuse_split(id, first_split(id));
    if (split(operand(id, 0)).divided()) refuse(id, "looks up tokens of which each rank has a part in a divided table");
    graph::Var sum = divided_embedding(var(operand(id, 0)), var(operand(id, 1)));
    if (from_.operands(id).size() == 3) {
      require_whole(id, 2);
      Shape const& shape = sum.shape();
      sum = sum + graph::slice(var(operand(id, 2)), {0, 0}, {shape[1], shape[2]});
    }
    set(id, sum.id);
  }
  /// Of logits by columns.
  void cross_entropy(Id id, Split const& x) {
    Shape const& logits = from_.shape(operand(id, 0));
    require_whole(id, 1);
    if (x.axis != logits.rank() - 1 || x.sections.size() != 1) refuse_split(id, x);
    std::int64_t const ignored = from_.integer(id);
    graph::Var const targets = var(operand(id, 1));
    graph::Var const losses = divided_row_losses(var(operand(id, 0)), targets, ignored, ranks_);
    write_out(id, mean_of(sum_all(losses), losses, targets, ignored), 2);
  }
  void linear_cross_entropy(Id id) {
    Split const weight = split(operand(id, 1));
    if (weight.axis != 0 || weight.sections.size() != 1) refuse_split(id, first_split(id));
    if (split(operand(id, 0)).divided())
      refuse(id, "multiplies an input of which each rank has a part with a divided head");
    require_whole(id, 2);
    List<std::int64_t> product = integers(id);
    std::int64_t const ignored = product[0], vocabulary = product[1];
    product.erase(0);
    product.erase(0);
    // One sum for the gradient of the input, also where rows are taken some at a time.
    graph::Var const x = shares_tokens_ ? graph::vary(var(operand(id, 0)), tensor) : var(operand(id, 0));
    write_out(id, divided_linear_cross_entropy(x, var(operand(id, 1)), var(operand(id, 2)), product,
                                               ignored, vocabulary, ranks_), 3);
  }
  /// Mean and rows' losses, result `rows`; the gradients, the others, arise anew.
  void write_out(Id id, graph::Losses const& losses, std::size_t rows) {
    set(id, losses.mean.id);
    List<Id> results(at(from_.results(id)), graph::none);
    results[0] = losses.mean.id;
    results[rows] = losses.tokens.id;
    values_[at(id)].results = std::move(results);
  }

  void slice(Id id, Split const& x) {
    List<std::int64_t> box = integers(id);
    auto const rank = at(from_.shape(id).rank()), axis = at(x.axis);
    std::int64_t const start = box[axis], limit = box[rank + axis];
    Split kept{x.axis, {}};
    std::int64_t begin = 0;
    bool starts = false, ends = false;
    for (std::int64_t section : x.sections) {
      starts = starts || begin == start;
      if (begin >= start && begin + section <= limit) kept.sections.push_back(section);
      begin += section;
      ends = ends || begin == limit;
    }
    if (!starts || !ends || kept.length() != limit - start || box[2 * rank + axis] != 1)
      refuse(id, concat("takes ", start, " to ", limit, " of axis ", x.axis,
                        ", which is divided into other sections. Give the rule of its weight such sections"));
    box[axis] /= ranks_;
    box[rank + axis] /= ranks_;
    set(id, made(id, operands(id), std::move(box), kept), {kept});
  }
  void concatenate(Id id) {
    auto const axis = static_cast<int>(from_.integer(id));
    if (Split const first = first_split(id); first.axis != axis) return elementwise(id, first);
    Split all{axis, {}};
    for (Id operand : from_.operands(id)) {
      if (split(operand).axis != axis) refuse(id, "puts parts and what every rank has whole side by side");
      all.sections.append(split(operand).sections.begin(), split(operand).sections.end());
    }
    emit(id, operands(id), all);
  }
  void reshape(Id id, Split const& x) {
    Shape const &before = from_.shape(operand(id, 0)), &after = from_.shape(id);
    auto const product = [](Shape const& shape, int first, int end) {
      std::int64_t n = 1;
      for (int axis = first; axis < end; ++axis) n *= shape[axis];
      return n;
    };
    std::int64_t const outer = product(before, 0, x.axis), inner = product(before, x.axis + 1, before.rank());
    for (int axis = 0; axis < after.rank(); ++axis) {
      std::int64_t const within = product(after, axis + 1, after.rank());
      if (product(after, 0, axis) != outer || after[axis] == 1) continue;
      Split changed{axis, {}};
      for (std::int64_t section : x.sections)
        if (section * inner % within == 0 && section * inner / within % ranks_ == 0)
          changed.sections.push_back(section * inner / within);
      if (changed.sections.size() != x.sections.size() || changed.length() != after[axis]) break;
      return emit(id, operands(id), changed);
    }
    refuse(id, concat("makes ", to_string(after), " of ", to_string(before), ", of which each rank has a part of axis ",
                      x.axis, " that is no part of the result"));
  }
  void reduce(Id id, Split const& x) {
    Split left = x;
    for (std::int64_t axis : from_.integers(id)) {
      if (axis == x.axis) {
        if (from_.op(id) != Op::reduce_sum) refuse_split(id, x);
        return set(id, joined(made(id, operands(id), integers(id), {})).id);
      }
      left.axis -= axis < x.axis ? 1 : 0;
    }
    emit(id, operands(id), left);
  }
  void dot(Id id) {
    graph::DotShape const dot = graph::dot_shape(from_, id);
    Split const a = split(operand(id, 0)), b = split(operand(id, 1));
    auto const place = [](std::span<std::int64_t const> axes, int axis) {
      auto const found = std::find(axes.begin(), axes.end(), axis);
      return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
    };
    auto const both = [&](std::span<std::int64_t const> of_a, std::span<std::int64_t const> of_b) {
      return a.divided() && b.divided() && place(of_a, a.axis) >= 0 && place(of_a, a.axis) == place(of_b, b.axis) &&
             a.sections == b.sections;
    };
    /// Axes of an operand that stand free in the result, before this one.
    auto const free_before = [](Split const& split, auto const& batch, auto const& contracted) {
      int count = split.axis;
      for (std::int64_t axis : batch) count -= axis < split.axis ? 1 : 0;
      for (std::int64_t axis : contracted) count -= axis < split.axis ? 1 : 0;
      return count;
    };
    auto const batch = static_cast<int>(dot.batch_a.size());
    if (both(dot.batch_a, dot.batch_b)) return emit(id, operands(id), {place(dot.batch_a, a.axis), a.sections});
    if (both(dot.contract_a, dot.contract_b))
      return set(id, joined(made(id, operands(id), integers(id), {})).id);
    bool const a_free = a.divided() && place(dot.batch_a, a.axis) < 0 && place(dot.contract_a, a.axis) < 0;
    bool const b_free = b.divided() && place(dot.batch_b, b.axis) < 0 && place(dot.contract_b, b.axis) < 0;
    int const frees_of_a = from_.shape(operand(id, 0)).rank() - batch - static_cast<int>(dot.contract_a.size());
    if (a_free && !b.divided())
      return emit(id, operands(id), {batch + free_before(a, dot.batch_a, dot.contract_a), a.sections});
    if (b_free && !a.divided())
      return emit(id, operands(id), {batch + frees_of_a + free_before(b, dot.batch_b, dot.contract_b), b.sections});
    refuse(id, "multiplies operands that are not divided alike");
  }
};

}  // namespace tutti::parallel::detail
