// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What must hold of training with compressed gradients over the ranks of any backend.

#include "train/small_batches.hpp"

#include <tutti/parallel/compression.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {

/// Of a model that this size is made for: its matrices are worth compressing.
inline nn::Gpt2Config const compressed_gpt2{
    .layers = 2, .heads = 2, .channels = 32, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

struct CompressedRun {
  std::string wrong;              ///< what did not hold, in words
  std::vector<float> losses;      ///< of every step
  std::vector<std::byte> matrix;  ///< of parameters after the last step
  std::int64_t sent = 0;          ///< bytes given to collectives in a step
};

/// Eight steps of a global batch of twelve sequences, stopped and resumed in another TrainStep halfway.
template <class Comm>
CompressedRun train_compressed(Comm& communicator, optim::AnyCompressor const& compressor, parallel::Replicas replicas,
                               std::int64_t micro_steps) {
  CompressedRun result;
  auto const expect = [&](bool holds, std::string const& what) {
    if (!holds) result.wrong += "rank " + std::to_string(communicator.rank()) + ": " + what + "; ";
  };
  constexpr std::int64_t steps = 8;
  std::int64_t const rows = 12 / communicator.size();
  exec::Context context({.threads = 1});
  using Step = train::TrainStep<nn::Gpt2Loss>;
  auto const make = [&] {
    auto step = std::make_unique<Step>(context, compressed_gpt2, optim::AdamW{},
                                       train::TrainStepOptions{.batch = rows / micro_steps,
                                                               .sequence = 8,
                                                               .micro_steps = micro_steps,
                                                               .clip = 1,
                                                               .compress = compressor});
    step->initialise(42);
    step->connect(parallel::data_parallel(communicator, replicas));
    return step;
  };
  auto const train = [&](Step& step, std::int64_t from, std::int64_t to, std::vector<float>& losses) {
    for (std::int64_t i = from; i < to; ++i) {
      Rows const batch(i, communicator.rank() * rows, rows);
      losses.push_back(step(batch.at(i), 3e-3).loss);
    }
  };
  using Contents = std::map<std::string, std::vector<std::byte>>;
  auto const contents = [](Step& step) {
    Contents all;
    for (graph::Field const& field : step.state().fields()) {
      auto const* const bytes = static_cast<std::byte const*>(field.data());
      all[field.name].assign(bytes, bytes + field.bytes());
    }
    return all;
  };

  auto const whole = make();
  train(*whole, 0, steps / 2, result.losses);
  Contents const halfway = contents(*whole);
  communicator.barrier();  // what ranks share is read before others write it
  train(*whole, steps / 2, steps, result.losses);
  Contents const end = contents(*whole);
  result.sent = whole->sent_bytes(graph::MeshAxis::data);
  result.matrix = end.at("blocks.fc.weight");
  whole->require_equal("after training");

  auto const resumed = make();
  for (graph::Field& field : resumed->state().fields())
    if (resumed->state().writer() || !field.shared())
      std::memcpy(field.data(), halfway.at(field.name).data(), static_cast<std::size_t>(field.bytes()));
  resumed->set_updates(steps / 2);
  std::vector<float> again(result.losses.begin(), result.losses.begin() + steps / 2);
  train(*resumed, steps / 2, steps, again);
  expect(again == result.losses, "losses of the resumed run differ");
  Contents const after = contents(*resumed);
  for (auto const& [name, bytes] : end)
    expect(name.starts_with("accumulated.") || after.at(name) == bytes, name + " is not what it was without a pause");
  communicator.barrier();
  return result;
}

}  // namespace tutti::test
