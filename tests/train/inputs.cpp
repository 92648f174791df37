// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Losses that declare what they read, and what they may ask of the step.
// Covers: <tutti/train/inputs.hpp> <tutti/train/loss_context.hpp> <tutti/train/step_programs.hpp>

#include "support/catch.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/graph/probabilities.hpp>
#include <tutti/nn/layers.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using graph::Var;

namespace {

struct LineConfig {};
struct Line {
  BOOST_HANA_DEFINE_STRUCT(Line, (graph::Param, slope), (graph::Param, start));
};
Line make_parameters(LineConfig const&) { return {{{3, 2}, graph::normal(0.5)}, {{2}, graph::zeros()}}; }

/// Of everything that a loss may read: floats, a mask, integers, a number of each row, and what all rows share.
struct Everything {
  BOOST_HANA_DEFINE_STRUCT(Everything, (Input, x), (Input, known), (Input, wanted), (Input, weight), (Input, scale));
};
struct LineLoss {
  using Config = LineConfig;
  static Everything inputs(Config const&) {
    return {row_input<float>({3}), row_input<bool>({3}), row_input<std::int32_t>({2}), row_input<float>(),
            whole_input<double>({2})};
  }
  Var operator()(Line const& model, Everything const& in) const {
    std::int64_t const rows = in.x.shape()[0];
    Var const x = select(in.known, in.x, graph::constant(*in.x.builder, 0, {rows, 3}));
    Var const y = dot_general(x, model.slope, {1}, {0}) + model.start;
    Var const error = (y - convert(in.wanted, DType::float32)) * convert(in.scale, DType::float32);
    return mean_all(reduce_sum(error * error, {1}) * in.weight);
  }
};

/// Rows [first, first + rows) of all.
struct LineBatch {
  Tensor<float> x, weight;
  Tensor<bool> known;
  Tensor<std::int32_t> wanted;
  Tensor<double> scale = zeros<double>({2});

  LineBatch(std::int64_t first, std::int64_t rows)
      : x(Shape{rows, 3}), weight(Shape{rows}), known(Shape{rows, 3}), wanted(Shape{rows, 2}) {
    for (std::int64_t r = 0; r < rows; ++r) {
      auto const row = static_cast<float>(first + r);
      weight(r) = 0.5f + 0.25f * row;
      for (int i = 0; i < 3; ++i) x(r, i) = std::sin(row + static_cast<float>(3 * i));
      for (int i = 0; i < 3; ++i) known(r, i) = (first + r + i) % 3 != 0;
      for (int i = 0; i < 2; ++i) wanted(r, i) = static_cast<std::int32_t>((first + r) % 3) - i;
    }
    scale(0) = 0.5, scale(1) = 1.5;
  }
  std::vector<InputValues> values() const {
    return {{"scale", scale}, {"x", x}, {"known", known}, {"wanted", wanted}, {"weight", weight}};
  }
  /// In double, with what `state` holds.
  double loss(graph::State& state) const {
    double sum = 0;
    auto const slope = state["slope"], start = state["start"];
    for (std::int64_t r = 0; r < x.shape()[0]; ++r)
      for (int i = 0; i < 2; ++i) {
        double y = double{start(i)};
        for (int k = 0; k < 3; ++k) y += known(r, k) ? double{x(r, k)} * double{slope(k, i)} : 0;
        double const error = (y - wanted(r, i)) * scale(i);
        sum += error * error * double{weight(r)};
      }
    return sum / static_cast<double>(x.shape()[0]);
  }
};

/// What it is told of the step, as its loss.
struct TellingLoss {
  using Config = LineConfig;
  struct Given {
    BOOST_HANA_DEFINE_STRUCT(Given, (Input, x), (Input, unused));
  };
  static Given inputs(Config const&, std::int64_t sequence) {
    return {row_input<float>({sequence}), row_input<float>({7})};
  }
  Var operator()(Line const& model, Given const& in, LossContext const& of) const {
    Var const kept = dropout(in.x, 0.5, of.random().key(in.x, 0));
    Var const told = convert(of.seed() * 100.0 + of.step(), DType::float32) + (of.training ? 0.0 : 0.5);
    of.output("kept", kept);
    of.output("share", mean_all(kept));
    return told + mean_all(model.start) + mean_all(kept) * 1000.0;
  }
};
/// The same of tokens and targets, which it does not declare.
struct TellingTokens {
  using Config = LineConfig;
  Var operator()(Line const& model, Var tokens, Var, LossContext const& of) const {
    return mean_all(convert(tokens, DType::float32)) + (of.training ? 0.0 : 0.5) + mean_all(model.start);
  }
};

}  // namespace

TEST_CASE("a loss of floats, masks, integers and shared numbers learns alike on any number of ranks and micro-steps") {
  auto const run = [](int ranks, std::int64_t micro_steps, std::vector<std::int64_t> const& shares) {
    std::vector<double> losses, wrong(static_cast<std::size_t>(ranks), 0.0);
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      auto const rank = static_cast<std::size_t>(communicator.rank());
      std::int64_t first = 0;
      for (std::size_t r = 0; r < rank; ++r) first += shares[r];
      TrainStep<LineLoss> step(context, {}, {},
                               {.batch = shares[rank] / micro_steps, .evaluation_batch = 12,
                                .micro_steps = micro_steps,
                                .weight = static_cast<double>(ranks * shares[rank]) / 12, .clip = 0.5});
      step.initialise(3);
      step.connect(parallel::data_parallel(communicator));
      LineBatch const batch(first, shares[rank]), all(0, 12);
      for (int i = 0; i < 6; ++i) {
        double const expected = all.loss(step.state());
        double const measured = step.evaluate(all.values());
        double const trained = double{step(batch.values(), 0.1).loss};
        if (rank == 0) losses.push_back(trained);
        wrong[rank] = std::max({wrong[rank], std::abs(measured - expected), std::abs(trained - expected)});
      }
    });
    for (double const most : wrong) CHECK(most < 1e-5);
    return losses;
  };
  std::vector<double> const alone = run(1, 1, {12});
  CHECK(alone.back() < 0.8 * alone.front());
  CHECK(run(1, 3, {12}).back() == Approx(alone.back()).epsilon(1e-5));
  CHECK(run(2, 1, {6, 6}).back() == Approx(alone.back()).epsilon(1e-5));
  CHECK(run(2, 2, {8, 4}).back() == Approx(alone.back()).epsilon(1e-5));
  CHECK(run(3, 1, {4, 3, 5}).back() == Approx(alone.back()).epsilon(1e-5));
}

TEST_CASE("an input that is missing, unknown, given twice, of another type or shape gets a sentence that names it") {
  exec::Context context({.threads = 1});
  TrainStep<LineLoss> step(context, {}, {}, {.batch = 2, .evaluation_batch = 3, .micro_steps = 2});
  step.initialise(3);
  LineBatch const batch(0, 4), three(0, 3);
  auto const with = [&](InputValues const& changed) {
    std::vector<InputValues> values = batch.values();
    for (InputValues& one : values)
      if (one.name == changed.name) one = changed;
    return values;
  };
  step(batch.values(), 0.1);
  std::vector<InputValues> values = batch.values();
  values.pop_back();
  REQUIRE_ERROR(step(values, 0.1), ErrorKind::invalid_argument, "input 'weight' is missing. The loss reads 'x'");
  REQUIRE_ERROR(
      step(values, 0.1), ErrorKind::invalid_argument,
      "'x' (float32 (4, 3)), 'known' (bool (4, 3)), 'wanted' (int32 (4, 2)), 'weight' (float32 (4,)), 'scale' "
      "(float64 (2,))");
  values.push_back({"wait", batch.weight});
  REQUIRE_ERROR(step(values, 0.1), ErrorKind::invalid_argument, "the loss reads no input 'wait'. It reads 'x'");
  values.back() = {"x", batch.x};
  REQUIRE_ERROR(step(values, 0.1), ErrorKind::invalid_argument, "input 'x' is given twice");
  REQUIRE_ERROR(step(with({"wanted", batch.x}), 0.1), ErrorKind::dtype,
                "input 'wanted' is float32 and must be int32");
  REQUIRE_ERROR(step(with({"x", three.x}), 0.1), ErrorKind::shape,
                "input 'x' is of shape (3, 3) and must be (4, 3): the batch's rows first");
  REQUIRE_ERROR(step(with({"scale", Tensor<double>(Shape{4, 2})}), 0.1), ErrorKind::shape,
                "input 'scale' is of shape (4, 2) and must be (2,), the same for all rows");
  REQUIRE_ERROR(step.evaluate(batch.values()), ErrorKind::shape, "and must be (3, 3)");
  REQUIRE_ERROR(step.evaluate(batch.values()), ErrorKind::shape, "(inputs.cpp:");
  REQUIRE_ERROR(step(test::Rows(0, 0, 4).at(0), 0.1), ErrorKind::invalid_argument, "reads no input 'tokens'");
  static_assert(reads_tokens<nn::Gpt2Loss> && reads_tokens<TellingTokens> && !reads_tokens<LineLoss>);
}

TEST_CASE("a loss knows whether it trains, the seed and the step, and gives outputs of an evaluation") {
  exec::Context context({.threads = 1});
  TrainStep<TellingLoss> step(context, {}, {},
                              {.batch = 4, .sequence = 256, .evaluation_batch = 2, .seed = 7});
  step.initialise(1);
  Tensor<float> const x = full<float>({4, 256}, 1.0f), unused(Shape{4, 7}), held_out = full<float>({2, 256}, 3.0f);
  auto const at = [&](double told, float loss) {  // a dropout of ones, scaled, has a mean of about one
    double const dropped = double{loss} - told;
    return dropped > 800 && dropped < 1200 && std::abs(dropped - 1000) > 1;
  };
  CHECK(at(700, step({{"x", x}, {"unused", unused}}, 0.0).loss));
  CHECK(at(701, step({{"x", x}, {"unused", unused}}, 0.0).loss));
  CHECK(step.evaluate({{"x", held_out}, {"unused", Tensor<float>(Shape{2, 7})}}) == Approx(702.5 + 3000));
  CHECK(step.output<float>("share")() == Approx(3));
  CHECK(step.output<float>("kept").shape() == Shape{2, 256});
  for (float const kept : step.output<float>("kept").elements()) CHECK(kept == 3.0f);
  REQUIRE_ERROR(step.output<float>("shore"), ErrorKind::invalid_argument, "no output 'shore'. It has: ");
  step.set_updates(40);
  CHECK(at(740, step({{"x", x}, {"unused", unused}}, 0.0).loss));

  TrainStep<TellingTokens> tokens(context, {}, {}, {.batch = 2, .sequence = 8});
  tokens.initialise(1);
  test::Rows const rows(0, 0, 2);
  double const measured = tokens.evaluate(rows.tokens.view(), rows.targets.view());
  CHECK(measured == Approx(double{tokens(rows.at(0), 0.0).loss} + 0.5));
}
