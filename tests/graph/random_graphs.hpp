// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Graphs drawn at random, with collectives between their other operations: what plans are fuzzed with.

#include <tutti/graph/grad.hpp>
#include <tutti/graph/repeat.hpp>
#include <tutti/tensor/random.hpp>

#include <cstdint>
#include <string>

namespace tutti::test {

using namespace tutti::graph;

/// Draws one graph of `ranks` ranks: a pure function of the seed. Values stay near one in magnitude, (rows, columns)
/// each: elementwise operations, products, views, pieces, and reductions of all kinds, of values, of views and of each
/// other; a loop around some of them; outputs, updates of a parameter and a state, and (mostly) gradients through it
/// all.
class RandomGraph {
 public:
  RandomGraph(std::uint64_t seed, int ranks) : random_(seed, 0), ranks_(ranks) {}

  Graph draw() {
    rows_ = 1 + pick(4);
    columns_ = pick(3) == 0 ? 33 : 1 + pick(6);
    Shape const shape{rows_, columns_};
    Builder b;
    Var const weight = b.parameter("weight", shape, ones()), state = b.state("state", shape);
    values_ = {b.input("x", DType::float32, shape, Replication::varying),
               b.input("y", DType::float32, shape, Replication::varying), weight, state};
    int const count = 3 + static_cast<int>(pick(18));
    for (int i = 0; i < count; ++i) values_.push_back(pick(9) == 0 ? loop(value()) : operation(value(), value()));
    if (pick(3) > 0) b.update(state, replicated(value()));
    if (pick(3) == 0) b.update(weight, replicated(value()));
    int const outputs = 1 + static_cast<int>(pick(4));
    for (int i = 0; i < outputs; ++i) b.output("out" + std::to_string(i), value());
    b.output("last", values_.back());
    if (pick(4) > 0) {
      Var const loss = mean_all(values_.back()) + mean_all(value());
      List<Var> const found = gradients(loss, {weight, state});
      bool const again = pick(2) == 0;  // as training steps do whose user had the inputs vary
      for (std::size_t i = 0; i < found.size(); ++i)
        b.output("gradient" + std::to_string(i), again ? averaged(found[i]) : found[i]);
      b.output("loss", again ? averaged(loss) : loss);
    }
    return canonical(b.graph());
  }

 private:
  std::int64_t pick(std::int64_t choices) {
    return static_cast<std::int64_t>(random_.bits(next_++) % static_cast<std::uint64_t>(choices));
  }
  /// Of those there are, the newest as often as all others.
  Var value() {
    auto const size = static_cast<std::int64_t>(values_.size());
    return values_[static_cast<std::size_t>(pick(2) == 0 ? size - 1 : pick(size))];
  }
  comm::PortOp reduction() { return pick(3) == 0 ? comm::PortOp::sum : comm::PortOp::avg; }
  static Var averaged(Var x) { return all_reduce(vary(x, comm::PortOp::avg), comm::PortOp::avg); }
  Var replicated(Var x) {
    return x.type().replication == Replication::replicated ? x : all_reduce(x, comm::PortOp::avg);
  }
  Var reduced(Var x) {
    comm::PortOp const op = reduction();
    Var const sum = all_reduce(vary(x, op), op);
    return op == comm::PortOp::sum ? sum * (1.0 / ranks_) : sum;
  }
  /// Reduces a part of the rows; the rest stays as it is.
  Var partly_reduced(Var x) {
    std::int64_t const cut = pick(rows_ + 1);
    Var const above = slice(x, {0, 0}, {cut, columns_}), below = slice(x, {cut, 0}, {rows_, columns_});
    return concatenate({reduced(above), below}, 0);
  }
  Var gathered(Var x) {
    Var const all = all_gather(vary(x), ranks_);
    std::int64_t const from = pick(ranks_) * rows_;
    return slice(all, {from, 0}, {from + rows_, columns_});
  }
  Var scattered(Var x) {
    Var const own = vary(x);
    Var all = own;
    for (int r = 1; r < ranks_; ++r) all = concatenate({all, own * (0.5 + 0.25 * r)}, 0);
    return reduce_scatter(all, ranks_, comm::PortOp::avg);
  }
  Var exchanged(Var x) {
    Var all = x;
    for (int r = 1; r < ranks_; ++r) all = concatenate({all, x * (0.5 + 0.25 * r)}, 0);
    std::int64_t const from = pick(ranks_) * rows_;
    return slice(all_to_all(all, ranks_), {from, 0}, {from + rows_, columns_});
  }
  Var operation(Var x, Var y) {
    switch (pick(18)) {
      case 0: return x * 0.5 + y;
      case 1: return tanh(x * y);
      case 2: return x * 0.75 - y * 0.5;
      case 3: return tanh(dot_general(dot_general(x, y, {1}, {1}), x, {1}, {0}));
      case 4: return reshape(reduced(reshape(x, {rows_ * columns_})), {rows_, columns_});
      case 5: return transpose(reduced(transpose(x, {1, 0})), {1, 0});
      case 6: return partly_reduced(x);
      case 7: return broadcast_to(reduced(mean_all(x)), {rows_, columns_}) + y * 0.5;
      case 8: return broadcast(vary(x), static_cast<int>(pick(ranks_)));
      case 9: return gathered(x);
      case 10: return scattered(x);
      case 11: return reduced(reduced(x));
      case 12: return reduced(tanh(reduced(x)) * 0.5 + y);
      case 13: return x;
      case 14: return exchanged(x);
      case 15: return send_receive(x, ranks_, static_cast<int>(pick(5)) - 2, pick(2) == 0) + y * 0.5;
      default: return reduced(x);
    }
  }
  /// A few rounds, each of which reduces what the last one gave, or something made of it.
  Var loop(Var x) {
    Var const start = replicated(x);
    bool const computes = pick(2) == 0;
    Scan body(*start.builder, start, pick(4), Where::current());
    Var const carried = body.carried(), made = computes ? tanh(carried) * 0.75 + start * 0.25 : carried;
    return body.finish(reduced(made));
  }

  CounterRandom random_;
  std::uint64_t next_ = 0;
  int ranks_;
  std::int64_t rows_ = 1, columns_ = 1;
  List<Var> values_;
};

}  // namespace tutti::test
