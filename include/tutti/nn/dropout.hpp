// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Dropout in losses: where its random numbers come from in a training step, and in attention.

#include <tutti/graph/composites.hpp>
#include <tutti/graph/decompose.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace tutti::nn {

using graph::Var;

/// What the dropouts of a step draw from: scalars of the program, which a TrainStep sets. Make one outside of the
/// layers' loop.
/// Determinism  masks are functions of the seed, the step, the stream and the row's place in the batch of all ranks and
///              micro-steps: the same on any number of them
class StepRandom {
 public:
  static constexpr std::string_view seed_name = "dropout.seed", step_name = "dropout.step", row_name = "dropout.row";

  /// `any` is a value of the loss.
  explicit constexpr StepRandom(Var any, graph::Where where = graph::Where::current())
      : StepRandom(*any.builder, where) {}
  explicit constexpr StepRandom(graph::Builder& builder, graph::Where where = graph::Where::current()) {
    seed_ = builder.shared_scalar(seed_name, DType::int64, where);
    step_ = builder.shared_scalar(step_name, DType::int64, where);
    row_ = builder.shared_scalar(row_name, DType::int64, where);
  }
  /// Gives these scalars to a program that reads them. `row` is the first of its rows among those of the whole step.
  template <class Run>
  static void set(Run& run, std::int64_t seed, std::int64_t step, std::int64_t row) {
    std::pair<std::string_view, std::int64_t> const scalars[]{{seed_name, seed}, {step_name, step}, {row_name, row}};
    for (auto const& [name, value] : scalars)
      if (run.takes(name)) run.set(name, value);
  }
  /// For x whose first axis is the batch. `stream` is an integer () that no other dropout of the step has.
  constexpr graph::DropoutKey key(Var x, Var stream, graph::Where where = graph::Where::current()) const {
    Shape const shape = x.shape(where);
    std::int64_t const rows = shape.rank() > 0 && shape[0] > 0 ? shape[0] : 1;
    Var const first = graph::Operand(row_, where) * static_cast<double>(shape.size() / rows);
    return {seed_, step_, stream, first};
  }
  constexpr graph::DropoutKey key(Var x, std::int64_t stream, graph::Where where = graph::Where::current()) const {
    Var const number = graph::constant(*x.builder, static_cast<double>(stream), {}, DType::int64, where);
    return key(x, number, where);
  }

 private:
  Var seed_, step_, row_;
};
/// Causal self-attention, as graph::attention with heads of their own keys and values, whose probabilities are dropped.
/// Cost      written in primitives: it keeps numbers (B, heads, T, T) for the backward pass, unlike graph::attention
constexpr Var attention(Var qkv, int heads, double p, StepRandom const& random, Var stream,
                        graph::Where where = graph::Where::current()) {
  using namespace graph::detail;
  Shape const packed = qkv.shape(where);
  if (packed.rank() != 3 || heads < 1 || packed[2] % (3 * heads) != 0)
    graph::refuse(where, "attention", "packed projections (B, T, 3C) with C a multiple of heads are needed", packed);
  std::int64_t const channels = packed[2] / 3;
  Heads const h = heads_of(qkv, heads, heads);
  Var const s = scores_of(DType::float32, h, reciprocal_root(static_cast<double>(channels) / heads));
  Var const e = weights_of(s, causal(*qkv.builder, s.shape())).e;
  Var const probability = e / last_sum(e);
  Var const dropped = dropout(probability, p, random.key(probability, stream, where), where);
  Var const out = graph::dot_general(dropped, h.v, {3}, {1}, {0, 1}, {0, 2}, where);  // (B, heads, T, size)
  return reshape(transpose(out, {0, 2, 1, 3}), packed.with(2, channels));
}

}  // namespace tutti::nn
