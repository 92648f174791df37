// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What must hold of a model that the ranks of any backend train as meshes of data, tensor and pipeline axes.

#include "train/small_batches.hpp"

#include <tutti/nn/llama.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/train/train_step.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {

inline nn::Gpt2Config const mesh_gpt2{
    .layers = 2, .heads = 4, .channels = 16, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};
inline nn::LlamaConfig const mesh_llama{.layers = 2, .heads = 8, .kv_heads = 4, .channels = 16, .head_size = 2,
                                        .hidden = 24, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

inline nn::Gpt2Config const deep_gpt2{
    .layers = 4, .heads = 2, .channels = 8, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};
inline nn::LlamaConfig const deep_llama{.layers = 4, .heads = 4, .kv_heads = 2, .channels = 8, .head_size = 2,
                                        .hidden = 12, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

struct MeshRun {
  std::int64_t micro_steps = 1;
  graph::Recompute recompute = graph::Recompute::none;
  optim::AnyOptimizer optimizer = optim::AdamW{.weight_decay = 0.1};
  parallel::PipelineSchedule schedule{};
  bool sequence_parallel = false;
  int zero = 0;  ///< 2 or 3: ranks of the data axis have parts of the state
  int virtual_stages = 1;
  List<std::int64_t> layers{};
  parallel::Replicas replicas = parallel::Replicas::per_rank;
  optim::AnyCompressor compress{};
  bool profile = false;
  std::vector<std::string> frozen{};
};

/// A step of eight sequences over all ranks.
template <class Loss>
class MeshTraining {
 public:
  static constexpr std::int64_t rows = 8;

  MeshTraining(exec::Context& context, typename Loss::Config const& config, MeshRun const& run,
               parallel::MeshSizes const& sizes, int rank = 0)
      : share_(rows / sizes.data),
        first_(rank / sizes.tensor % sizes.data * share_),
        step_(context, config, run.optimizer,
              {.batch = rows / sizes.data / run.micro_steps,
               .sequence = 8,
               .micro_steps = run.micro_steps,
               .clip = 0.5,
               .recompute = run.recompute,
               .profile = run.profile,
               .frozen = run.frozen,
               .pipeline = layout(run, sizes, rank),
               .tensor = sizes.tensor,
               .sequence_parallel = run.sequence_parallel && sizes.tensor > 1,
               .state_ranks = run.zero > 0 ? sizes.data : 1,
               .gather_again = run.zero == 3,
               .first_row = first_,
               .compress = run.compress}),
        replicas_(run.replicas) {}
  template <class Comm>
  void connect(Comm& communicator, parallel::MeshSizes const& sizes) {
    step_.connect(parallel::mesh(communicator, sizes, replicas_));
  }
  train::TrainStep<Loss>& step() { return step_; }
  /// Loss and norm of steps [from, to).
  std::vector<float> run(std::int64_t from, std::int64_t to) {
    std::vector<float> told;
    for (std::int64_t i = from; i < to; ++i) {
      Rows const batch(i, first_, share_);
      train::StepResult const result = step_(batch.at(i), 1e-2);
      told.push_back(result.loss);
      told.push_back(result.grad_norm);
    }
    return told;
  }

 private:
  static parallel::PipelineLayout layout(MeshRun const& run, parallel::MeshSizes const& sizes, int rank) {
    if (sizes.pipeline == 1) return {};
    return {sizes.pipeline, rank / sizes.tensor / sizes.data, run.schedule, run.virtual_stages, run.layers};
  }

  std::int64_t share_, first_;
  train::TrainStep<Loss> step_;
  parallel::Replicas replicas_;
};

inline double furthest(std::vector<float> const& a, std::vector<float> const& b) {
  double gap = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!(std::abs(double{a[i]} - double{b[i]}) <= gap)) gap = std::abs(double{a[i]} - double{b[i]});
  return gap;
}

/// But sums between micro-steps.
inline void copy_fields(graph::State& from, graph::State& to) {
  for (graph::Field& field : to.fields())
    if (!optim::is_accumulator(field.name))
      std::memcpy(field.data(), from.at(field.name).data(), static_cast<std::size_t>(field.bytes()));
}

/// Twenty steps on the mesh against those of one rank, twice, and half of them resumed on the mesh from what another
/// one left; what did not hold, in words.
template <class Loss, class Comm>
std::string train_on_mesh(Comm& communicator, typename Loss::Config const& config, parallel::MeshSizes const& sizes,
                          MeshRun const& run = {}) {
  std::string wrong;
  auto const expect = [&](bool holds, std::string const& what) {
    if (!holds) wrong += "rank " + std::to_string(communicator.rank()) + ": " + what + "; ";
  };
  exec::Context context({.threads = 1});
  auto const make = [&](parallel::MeshSizes const& of) {
    MeshRun suited = run;  // other numbers of stages do what goes with any
    if (of.pipeline != sizes.pipeline)
      suited = {.micro_steps = run.micro_steps, .optimizer = run.optimizer, .frozen = run.frozen};
    auto made = std::make_unique<MeshTraining<Loss>>(context, config, suited, of, communicator.rank());
    made->connect(communicator, of);
    return made;
  };
  constexpr std::int64_t rows = MeshTraining<Loss>::rows;
  MeshTraining<Loss> alone(context, config, run, {1, 1});
  alone.step().initialise(7);
  std::vector<float> const expected = alone.run(0, 20);

  std::vector<float> told[2];
  for (std::vector<float>& losses : told) {
    auto const training = make(sizes);
    training->step().initialise(7);
    if (sizes.tensor * sizes.pipeline == 1)  // as the trainer begins
      parallel::broadcast(*parallel::data_parallel(communicator, parallel::Replicas::per_rank).port,
                          training->step().state());
    losses = training->run(0, 20);
    training->step().require_equal("after training");
    if (training->step().in_parts()) {  // one tensor after the other is what all of them are together
      graph::State seen;
      training->step().show(true, [&](graph::State& whole) {
        for (graph::Field const& field : whole.fields())
          std::memcpy(seen.add(field.name, field.dtype, field.shape)->data(), field.data(),
                      static_cast<std::size_t>(field.bytes()));
      });
      graph::State whole = training->step().whole_fields();
      for (graph::Field& field : whole.fields()) {
        training->step().collect(field, communicator.rank() == 0);
        if (communicator.rank() == 0)
          expect(std::memcmp(field.data(), seen.at(field.name).data(), static_cast<std::size_t>(field.bytes())) == 0,
                 "'" + field.name + "' is collected otherwise than shown");
        whole.find(field.name)->memory.clear(0, field.bytes());
      }
    }
    Rows const held_out(99, 0, rows / sizes.data / run.micro_steps);
    double const evaluated = training->step().evaluate(held_out.at(99));
    losses.push_back(static_cast<float>(evaluated));
    expect(training->step().parameter_count() == alone.step().parameter_count(), "the count of parameters differs");
  }
  {
    MeshRun of = run;
    of.micro_steps *= sizes.data;
    MeshTraining<Loss> small(context, config, of, {1, 1});
    alone.step().show(true, [&](graph::State& trained) {
      small.step().fill([&](graph::State& state) { copy_fields(trained, state); });
    });
    Rows const held_out(99, 0, rows / of.micro_steps);
    told[0].back() -= static_cast<float>(small.step().evaluate(held_out.at(99)));
    expect(std::abs(told[0].back()) < 1e-5, "the loss of an evaluation differs");
    told[0].pop_back(), told[1].pop_back();
  }
  double const gap = furthest(told[0], expected);
  expect(gap < 1e-5, "losses and norms differ from one rank's by " + std::to_string(gap));
  expect(told[0] == told[1], "a second run gives other bits");

  // From any number of ranks that have one model together to any other.
  bool const staged = sizes.pipeline > 1;
  for (parallel::MeshSizes const& before :
       {parallel::MeshSizes{1, staged ? 1 : communicator.size(), staged ? communicator.size() : 1},
        {communicator.size(), 1}}) {
    if (rows / before.data < run.micro_steps) continue;
    auto const first = make(before);
    first->step().initialise(7);
    std::vector<float> both = first->run(0, 10);
    auto const second = make(sizes);
    first->step().show(true, [&](graph::State& saved) {
      second->step().fill([&](graph::State& whole) { copy_fields(saved, whole); });
    });
    second->step().set_updates(10);
    std::vector<float> const rest = second->run(10, 20);
    both.insert(both.end(), rest.begin(), rest.end());
    double const resumed = furthest(both, expected);
    expect(resumed < 1e-5, "resumed from " + std::to_string(before.data) + " x " + std::to_string(before.tensor) +
                               " x " + std::to_string(before.pipeline) +
                               ", losses differ by " + std::to_string(resumed));
  }
  return wrong;
}

}  // namespace tutti::test
