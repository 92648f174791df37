// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose gradients NCCL averages in device memory.
// Covers: <tutti/train/cuda/execution.hpp>

#include "backend/nccl/harness.hpp"

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/train_step.hpp>

#include <cstdint>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

nn::Gpt2Config const config{
    .layers = 2, .heads = 2, .channels = 16, .vocabulary = 20, .padded_vocabulary = 32, .max_tokens = 8};

struct Outcome {
  std::vector<float> losses;
  std::uint64_t hash = 0;
};

/// A rank's share of 4 sequences, 4 steps.
template <class Comm>
Outcome trained(Comm& comm, int device, parallel::DataParallel const& ranks) {
  kernel::cuda::Context context(device);
  kernel::cuda::Blas blas(context, {.workspace = std::size_t{1} << 16});
  std::int64_t const share = 4 / comm.size();
  TrainStepOptions options;
  options.batch = share;
  options.sequence = 8;
  options.clip = 0.5;
  TrainStep<nn::Gpt2Loss, Cuda> step(blas, config, {}, options);
  step.initialise(42);
  step.connect(ranks);
  Outcome outcome;
  for (std::int64_t i = 0; i < 4; ++i) {
    Tensor<std::int32_t> tokens(Shape{share, 8}), targets(Shape{share, 8});
    for (std::int64_t r = 0; r < share; ++r)
      for (std::int64_t t = 0; t < 8; ++t) {
        std::int64_t const row = comm.rank() * share + r;
        tokens(r, t) = static_cast<std::int32_t>((i * 7 + row * 5 + t * 3) % 20);
        targets(r, t) = static_cast<std::int32_t>((i * 7 + row * 5 + (t + 1) * 3) % 20);
      }
    outcome.losses.push_back(step({i, tokens.view(), targets.view()}, 1e-2).loss);
  }
  outcome.hash = parallel::hash(step.state());
  return outcome;
}

}  // namespace

TEST_CASE("gradients averaged by NCCL give what the host's average gives, the same on all ranks") {
  for (int const ranks : {1, 2, 4}) {
    if (ranks > test::most_ranks()) break;
    INFO(ranks << " ranks");
    std::vector<Outcome> by_nccl(static_cast<std::size_t>(ranks)), by_host = by_nccl;
    test::run_on_devices(ranks, [&](auto& comm) {
      auto const at = static_cast<std::size_t>(comm.rank());
      parallel::DataParallel both = parallel::data_parallel(comm);
      CHECK(static_cast<bool>(both.device) == (ranks > 1));
      int const device = comm.backend().accelerator().index();
      by_nccl[at] = trained(comm, device, both);
      both.device = nullptr;
      by_host[at] = trained(comm, device, both);
    });
    test::check_clean();
    for (int rank = 0; rank < ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      CHECK(by_nccl[at].hash == by_nccl[0].hash);
      CHECK(by_nccl[at].losses == by_nccl[0].losses);
      for (std::size_t i = 0; i < 4; ++i) CHECK(by_nccl[at].losses[i] == Approx(by_host[at].losses[i]).epsilon(1e-5));
    }
  }
}
