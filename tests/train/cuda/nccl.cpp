// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Training steps whose gradients NCCL averages in device memory.
// Covers: <tutti/train/cuda/execution.hpp>

#include "backend/nccl/harness.hpp"
#include "train/small_batches.hpp"

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/train_step.hpp>

#include <cstdint>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

nn::Gpt2Config const& config = test::small_gpt2;

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
    test::Rows const rows(i, comm.rank() * share, share);
    outcome.losses.push_back(step(rows.at(i), 1e-2).loss);
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
