// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Norms and zeros of gradients, and the operation that a NaN comes of.
// Covers: <tutti/optim/gradient_statistics.hpp> <tutti/graph/not_finite.hpp> <tutti/train/train_step_statistics.hpp>

#include "support/catch.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/graph/not_finite.hpp>
#include <tutti/optim/sgd.hpp>
#include <tutti/train/gradient_statistics.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using graph::Var;
using test::Rows;

namespace {

struct Measured {
  std::vector<GradientStatistics> found;
  std::vector<float> norms;
  std::uint64_t hash = 0;
};
/// Three steps on `ranks` ranks, with statistics before each or without.
Measured measure_steps(int ranks, std::int64_t micro_steps, parallel::Replicas replicas, bool measures) {
  std::vector<Measured> all(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    std::int64_t const share = 12 / ranks;
    TrainStep<nn::Gpt2Loss> step(context, test::small_gpt2, {.weight_decay = 0.1},
                                 {.batch = share / micro_steps, .sequence = 8, .micro_steps = micro_steps, .clip = 0.5,
                                  .frozen = {"wpe"}});
    step.initialise(42);
    step.connect(parallel::data_parallel(communicator, replicas));
    Measured& mine = all[static_cast<std::size_t>(communicator.rank())];
    for (int i = 0; i < 3; ++i) {
      Rows const rows(i, communicator.rank() * share, share);
      if (measures && i != 1) mine.found.push_back(step.gradient_statistics(rows.at(i)));
      mine.norms.push_back(step(rows.at(i), 1e-2).grad_norm);
    }
    mine.hash = parallel::hash(step.state());
  });
  for (Measured const& one : all) {
    CHECK(one.hash == all[0].hash);
    for (std::size_t i = 0; i < one.found.size(); ++i) {
      CHECK(one.found[i].norm == all[0].found[i].norm);
      for (std::size_t k = 0; k < one.found[i].parameters.size(); ++k) {
        CHECK(one.found[i].parameters[k].norm == all[0].found[i].parameters[k].norm);
        CHECK(one.found[i].parameters[k].zeros == all[0].found[i].parameters[k].zeros);
      }
    }
  }
  return all[0];
}

struct RootsConfig {};
struct Roots {
  BOOST_HANA_DEFINE_STRUCT(Roots, (graph::Param, scale), (graph::Param, shift), (graph::Param, apart));
};
Roots make_parameters(RootsConfig const&) {
  return {{{4}, graph::ones()}, {{4}, graph::zeros()}, {{2}, graph::ones()}};
}
/// Of which the logarithm fails below zero, and the exponential far above it.
struct RootsLoss {
  struct Given {
    BOOST_HANA_DEFINE_STRUCT(Given, (Input, x));
  };
  using Config = RootsConfig;
  static Given inputs(Config const&) { return {row_input<float>({4})}; }
  Var operator()(Roots const& p, Given const& in) const {
    Var const x = in.x * p.scale;
    Var const root = log(x + 1.0);
    return mean_all(exp(root * 2.0) + p.shift) + mean_all(p.apart);
  }
};

}  // namespace

TEST_CASE("statistics of gradients agree on any number of ranks and micro-steps, and steps do not notice them") {
  using enum parallel::Replicas;
  Measured const reference = measure_steps(1, 1, per_rank, true);
  CHECK(reference.hash == measure_steps(1, 1, per_rank, false).hash);
  REQUIRE(reference.found.size() == 2);
  REQUIRE(reference.found[0].parameters.size() == 15);  // wpe is frozen
  for (std::size_t i : {0u, 1u}) CHECK(reference.found[i].norm == Approx(reference.norms[2 * i]).epsilon(1e-6));
  for (auto const& [ranks, micro_steps, replicas] : std::initializer_list<std::tuple<int, int, parallel::Replicas>>{
           {1, 3, per_rank}, {2, 1, per_node}, {3, 2, per_node}, {4, 1, per_rank}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    Measured const other = measure_steps(ranks, micro_steps, replicas, true);
    CHECK(other.hash == measure_steps(ranks, micro_steps, replicas, false).hash);
    for (std::size_t i : {0u, 1u}) {
      CHECK(other.found[i].norm == Approx(reference.found[i].norm).epsilon(1e-4));
      CHECK(other.found[i].loss == Approx(reference.found[i].loss).epsilon(1e-5));
      CHECK(other.found[i].not_finite == "");
      for (std::size_t k = 0; k < 15; ++k) {
        ParameterGradient const &mine = other.found[i].parameters[k], &theirs = reference.found[i].parameters[k];
        CHECK(mine.name == theirs.name);
        CHECK(mine.norm == Approx(theirs.norm).epsilon(1e-3));
        if (theirs.name == "wte") CHECK(mine.zeros == theirs.zeros);
      }
    }
  }
}

TEST_CASE("norm and zeros of a gradient are those of what plain gradient descent takes away") {
  exec::Context context({.threads = 1});
  TrainStep<nn::Gpt2Loss> step(context, test::small_gpt2, optim::Sgd{.momentum = 0, .weight_decay = 0},
                               {.batch = 2, .sequence = 8});
  step.initialise(3);
  Rows const rows(0, 0, 2);
  GradientStatistics const found = step.gradient_statistics(rows.at(0));
  REQUIRE(found.parameters.size() == 16);
  std::map<std::string, std::vector<float>> before;
  for (ParameterGradient const& one : found.parameters) {
    auto const values = step.state()[one.name].elements();
    before[one.name].assign(values.begin(), values.end());
  }
  step(rows.at(0), 1.0);
  for (ParameterGradient const& one : found.parameters) {
    INFO(one.name);
    auto const after = step.state()[one.name].elements();
    double norm = 0, zeros = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      double const gradient = double{before[one.name][i]} - double{after[i]};
      norm += gradient * gradient;
      zeros += gradient == 0 ? 1 : 0;
    }
    CHECK(one.norm == Approx(std::sqrt(norm)).epsilon(1e-4).margin(1e-6));
    CHECK(one.zeros <= zeros / static_cast<double>(after.size()));  // small ones vanish in the difference
    if (one.name == "wte") CHECK(one.zeros >= 12.0 / 32);           // rows of no token
  }
}

TEST_CASE("a NaN is told of with the parameters that it reaches, and the operation, line, micro-step and rank") {
  struct Case {
    float x;  // in the last row of the last rank
    char const* expected;
  };
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (auto const& [x, expected] :
       {Case{-3, "the loss is nan, and the gradient of 'scale' is not finite: the first NaN comes of logarithm "
                 "(gradient_statistics.cpp:"},
        Case{3e38f, "the loss is infinite, and the gradient of 'scale' is not finite: the first infinity comes of "},
        Case{nan, "input 'x' is not finite, on rank "}})
    for (auto const& [ranks, micro_steps] : {std::pair(1, 1), std::pair(1, 2), std::pair(3, 2)}) {
      std::vector<GradientStatistics> found(static_cast<std::size_t>(ranks));
      threads::run(ranks, [&](Communicator<Threads>& communicator) {
        exec::Context context({.threads = 1});
        TrainStep<RootsLoss> step(context, {}, {}, {.batch = 2, .micro_steps = micro_steps});
        step.initialise(1);
        step.connect(parallel::data_parallel(communicator));
        Tensor<float> batch = full<float>({2 * micro_steps, 4}, 0.5f);
        if (communicator.rank() + 1 == ranks) batch(2 * micro_steps - 1, 3) = x;
        found[static_cast<std::size_t>(communicator.rank())] = step.gradient_statistics({{"x", batch}});
      });
      for (GradientStatistics const& one : found) {
        INFO(ranks << " ranks, " << micro_steps << " micro-steps: " << one.not_finite);
        bool const given = std::isnan(x);
        if (!given || ranks > 1) CHECK(test::contains(one.not_finite, expected));
        if (given) CHECK(test::contains(one.not_finite, "input 'x' is not finite"));
        if (!given) CHECK(test::contains(one.not_finite, "in micro-step 2 of 2") == (micro_steps == 2));
        CHECK(test::contains(one.not_finite, "on rank 2") == (ranks == 3));
        CHECK(std::isfinite(one.parameters.at(2).norm));  // 'apart'
      }
    }
  exec::Context context({.threads = 1});
  TrainStep<RootsLoss> step(context, {}, {}, {.batch = 1});
  step.initialise(1);
  Tensor<float> const batch = full<float>({1, 4}, 0.5f);
  step.state()["scale"](2) = -std::numeric_limits<float>::infinity();
  CHECK(test::contains(step.gradient_statistics({{"x", batch}}).not_finite,
                       "parameter 'scale' is not finite before the step"));
  REQUIRE_ERROR(step.gradient_statistics({{"y", batch}}), ErrorKind::invalid_argument, "reads no input 'y'");
}

TEST_CASE("what is not finite is found in strided boxes of every floating type, a NaN before an infinity") {
  using graph::Finite;
  std::vector<float> values(12, 1.0f);
  graph::Ref box = graph::contiguous_ref(0, 0, DType::float32, {2, 2});
  box.strides = {6, 2};  // elements 0, 2, 6, 8
  CHECK(graph::finite(box, values.data()) == Finite::yes);
  values[1] = values[11] = std::nanf("");
  CHECK(graph::finite(box, values.data()) == Finite::yes);
  values[2] = -INFINITY;
  CHECK(graph::finite(box, values.data()) == Finite::infinite);
  values[8] = std::nanf("");
  CHECK(graph::finite(box, values.data()) == Finite::nan);
  double const wide[]{0, INFINITY};
  CHECK(graph::finite(graph::contiguous_ref(0, 0, DType::float64, {2}), wide) == Finite::infinite);
  CHECK(graph::finite(graph::contiguous_ref(0, 0, DType::float64, {0}), wide) == Finite::yes);
  std::int32_t const integer = 0x7fc00000;
  CHECK(graph::finite(graph::contiguous_ref(0, 0, DType::int32, {}), &integer) == Finite::yes);
  std::uint16_t const half = 0x7e00, brain = 0x7f80;
  CHECK(graph::finite(graph::contiguous_ref(0, 0, DType::float16, {}), &half) == Finite::nan);
  CHECK(graph::finite(graph::contiguous_ref(0, 0, DType::bfloat16, {}), &brain) == Finite::infinite);
}
