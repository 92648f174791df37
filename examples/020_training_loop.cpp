// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A training loop of one's own: a GPT-2 on two ranks, data parallel. Mpi instead of Threads is the alias and its
// include.

#include <tutti/backend/threads.hpp>
#include <tutti/nn.hpp>
#include <tutti/optim.hpp>
#include <tutti/train/train_step.hpp>

#include <cstdio>

using Ranks = tutti::Threads;
using namespace tutti;

int main(int argc, char** argv) {
  return launch<Ranks>(argc, argv, [](auto& comm) {
    nn::Gpt2Config const config{
        .layers = 2, .heads = 2, .channels = 32, .vocabulary = 26, .padded_vocabulary = 32, .max_tokens = 24};
    optim::Schedule const schedule{
        .kind = optim::ScheduleKind::cosine, .peak = 1e-2, .warmup_steps = 10, .total_steps = 120};

    exec::Context context(comm.context_options());
    train::TrainStep<nn::Gpt2Loss> step(context, config, {.weight_decay = 0.1},
                                        {.batch = 4, .sequence = 24, .clip = 1.0});
    step.initialise(42);
    step.connect(parallel::data_parallel(comm));  // through a type-erased Port: the step's type does not change

    auto tokens = empty<std::int32_t>({4, 24}), targets = empty<std::int32_t>({4, 24});
    for (std::int64_t i = 0; i < schedule.total_steps; ++i) {
      // Each row counts through the alphabet in threes, from a letter of its own.
      for (int row = 0; row < 4; ++row)
        for (int t = 0; t < 24; ++t) {
          int const start = static_cast<int>(i) * 5 + row * 11 + comm.rank() * 17;
          tokens(row, t) = (start + t * 3) % 26;
          targets(row, t) = (start + (t + 1) * 3) % 26;
        }
      auto const result = step({i, std::as_const(tokens).view(), std::as_const(targets).view()}, schedule(i));
      bool const told = i == 0 || i + 1 == schedule.total_steps;
      if (comm.rank() == 0 && told)
        std::printf("step %3d: loss %s 0.5\n", static_cast<int>(i + 1), result.loss < 0.5f ? "below" : "above");
    }
  });
}
