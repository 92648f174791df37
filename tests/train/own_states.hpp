// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A loss that keeps states of its own, and what must hold of them over the ranks of any backend.

#include "train/small_batches.hpp"

#include <tutti/graph/repeat.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {

struct CountedLayer {
  BOOST_HANA_DEFINE_STRUCT(CountedLayer, (graph::Param, shift));
};
struct CountedModel {
  BOOST_HANA_DEFINE_STRUCT(CountedModel, (graph::Param, table), (graph::Param, stopped), (graph::Param, unused),
                           (graph::Stack<CountedLayer>, layers));
};
struct CountedConfig {
  std::int64_t layers = 2;
};
inline CountedModel make_parameters(CountedConfig const& config) {
  CountedModel model;
  model.table = {{20, 20}, graph::normal(0.02)};
  model.stopped = {{8, 20}, graph::normal(0.5)};
  model.unused = {{3, 3}, graph::normal(0.5)};
  model.layers.block.shift = {{8, 20}, graph::normal(0.5)};
  model.layers.length = config.layers;
  return model;
}

/// Scores of the next token by a table and shifts that are not trained. Beside it: a count of runs, a running mean of
/// the ranks' tokens, as `across` says, and one of each rank's own.
template <graph::StateUpdate across>
struct CountedLoss {
  using Config = CountedConfig;
  graph::Var operator()(CountedModel const& p, graph::Var tokens, graph::Var targets) const {
    using namespace graph;
    Builder& b = *tokens.builder;
    Var const count = b.state("count", {}), mean = b.state("mean", {}, across),
              own = b.state("own", {}, StateUpdate::per_rank);
    b.update(count, count + 1.0);
    Var const turns = b.state("turns", {}, zeros(), DType::int32);  // a state that is no float
    b.update(turns, turns + 1.0);
    Var const seen = mean_all(convert(tokens, DType::float32));
    b.update(mean, mean * 0.75 + seen * 0.25);
    b.update(own, own * 0.75 + seen * 0.25);
    Var x = embed(p.table, tokens) + stop_gradient(p.stopped);
    x = repeat(p.layers, x, [](CountedLayer const& layer, Var h) { return h + stop_gradient(layer.shift); });
    return cross_entropy(x, targets);
  }
};
using Averaged = CountedLoss<graph::StateUpdate::averaged>;

/// Everything in a state, and how it is written back.
using Contents = std::map<std::string, std::vector<std::byte>>;
inline Contents contents_of(graph::State& state) {
  Contents contents;
  for (graph::Field const& field : state.fields()) {
    auto const* const bytes = static_cast<std::byte const*>(field.data());
    contents[field.name].assign(bytes, bytes + field.bytes());
  }
  return contents;
}
inline void restore(graph::State& state, Contents const& contents) {
  for (graph::Field& field : state.fields())
    if (state.writer() || !field.shared())
      std::memcpy(field.data(), contents.at(field.name).data(), static_cast<std::size_t>(field.bytes()));
}

/// Trains on every rank of `communicator`, evaluates between steps, resumes halfway; what did not hold, in words.
template <class Comm>
std::string states_over_ranks(Comm& communicator, parallel::Replicas replicas, std::int64_t micro_steps) {
  std::string wrong;
  auto const expect = [&](bool holds, std::string const& what) {
    if (!holds) wrong += "rank " + std::to_string(communicator.rank()) + ": " + what + "; ";
  };
  constexpr std::int64_t rows = 4, steps = 8;
  exec::Context context({.threads = 1});
  using Step = train::TrainStep<Averaged>;
  auto const make = [&] {
    return std::make_unique<Step>(
        context, CountedConfig{}, optim::AdamW{.weight_decay = 0.1},
        train::TrainStepOptions{.batch = rows / micro_steps, .sequence = 8, .micro_steps = micro_steps});
  };
  auto const train = [&](Step& step, std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      Rows const batch(i, communicator.rank() * rows, rows);
      step(batch.at(i), 1e-2);
      Rows const other(100 + i, communicator.rank(), rows / micro_steps);
      step.evaluate(other.tokens.view(), other.targets.view());  // updates nothing
    }
  };
  auto const whole = make();
  whole->initialise(42);
  whole->connect(parallel::data_parallel(communicator, replicas));
  Contents const start = contents_of(whole->state());
  train(*whole, 0, steps / 2);
  Contents const halfway = contents_of(whole->state());
  train(*whole, steps / 2, steps);
  Contents const end = contents_of(whole->state());

  auto const number = [&](char const* name) {
    float value = 0;
    std::memcpy(&value, end.at(name).data(), sizeof value);
    return double{value};
  };
  double mean = 0, own = 0;
  for (std::int64_t i = 0; i < steps; ++i)
    for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
      double seen = 0, mine = 0;
      for (int rank = 0; rank < communicator.size(); ++rank) {
        Rows const batch(i, rank * rows + micro * (rows / micro_steps), rows / micro_steps);
        double sum = 0;
        for (std::int32_t token : batch.tokens.elements()) sum += token;
        sum /= static_cast<double>(batch.tokens.size());
        seen += sum / communicator.size();
        if (rank == communicator.rank()) mine = sum;
      }
      mean = mean * 0.75 + seen * 0.25;
      own = own * 0.75 + mine * 0.25;
    }
  expect(number("count") == double(steps * micro_steps), "the count is " + std::to_string(number("count")));
  expect(std::abs(number("mean") - mean) < 1e-4, "the mean over ranks is " + std::to_string(number("mean")));
  expect(std::abs(number("own") - own) < 1e-4, "this rank's own mean is " + std::to_string(number("own")));
  parallel::require_equal(*parallel::data_parallel(communicator, replicas).port, whole->state(), "after training");

  for (char const* name : {"stopped", "unused", "layers.shift"}) {
    expect(end.at(name) == start.at(name), std::string(name) + " has changed");
    expect(end.count(std::string("m.") + name) == 0, std::string(name) + " has moments");
  }
  expect(end.at("table") != start.at("table"), "the table is not trained");

  auto const resumed = make();
  resumed->connect(parallel::data_parallel(communicator, replicas));
  restore(resumed->state(), halfway);
  resumed->set_updates(steps / 2);
  train(*resumed, steps / 2, steps);
  Contents const again = contents_of(resumed->state());
  for (auto const& [name, bytes] : end)
    expect(name.starts_with("accumulated.") || again.at(name) == bytes, name + " is not what it was without a pause");
  return wrong;
}

}  // namespace tutti::test
