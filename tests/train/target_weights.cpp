// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/train/target_weights.hpp>

#include "support/catch.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/train/train_step.hpp>

#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

/// Rows of a step whose row r has r % 5 targets, from none on.
test::Rows masked_rows(std::int64_t step, std::int64_t first, std::int64_t rows) {
  test::Rows batch(step, first, rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = (first + r) % 5; t < 8; ++t) batch.targets(r, t) = -1;
  return batch;
}

std::vector<float> losses(int ranks, std::int64_t micro_steps, bool weigh = true) {
  std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = 1});
    data::Share const share = data::share_of(12 / micro_steps, communicator.rank(), ranks);
    TrainStep<nn::Gpt2Loss> step(
        context, test::small_gpt2, {},
        {.batch = share.count,
         .sequence = 8,
         .micro_steps = micro_steps,
         .weight = static_cast<double>(ranks * share.count * micro_steps) / 12,
         .clip = 0.5,
         .weigh_targets = weigh});
    step.initialise(42);
    step.connect(parallel::data_parallel(communicator));
    for (int i = 0; i < 4; ++i) {
      auto const rows = masked_rows(i, share.begin * micro_steps, share.count * micro_steps);
      found[static_cast<std::size_t>(communicator.rank())].push_back(step(rows.at(i), 1e-2).loss);
    }
  });
  for (auto const& one : found) CHECK(one == found[0]);
  return found[0];
}

}  // namespace

TEST_CASE(
    "with targets that do not count, a step's loss is the mean over those that do, on any ranks and micro-steps") {
  std::vector<float> const one = losses(1, 1);
  {  // by hand: the first step's rows one at a time
    exec::Context context({.threads = 1});
    TrainStep<nn::Gpt2Loss> step(context, test::small_gpt2, {}, {.batch = 1, .sequence = 8});
    step.initialise(42);
    double sum = 0, count = 0;
    for (std::int64_t row = 0; row < 12; ++row) {
      auto const rows = masked_rows(0, row, 1);
      double const targets = static_cast<double>(row % 5);
      sum += targets * step.evaluate(rows.tokens.view(), rows.targets.view());
      count += targets;
    }
    CHECK(one[0] == Approx(sum / count).epsilon(1e-6));
  }
  for (int const ranks : {1, 2, 3, 4})
    for (std::int64_t const micro_steps : {1, 2, 3}) {
      if (12 / micro_steps < ranks) continue;
      INFO(ranks << " ranks, " << micro_steps << " micro-steps");
      std::vector<float> const other = losses(ranks, micro_steps);
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(other[i] == Approx(one[i]).epsilon(1e-5));
    }
  CHECK(losses(1, 3, false)[0] != Approx(one[0]).epsilon(1e-5));  // a mean of means is another number
}

TEST_CASE("factors of micro-steps: one where all count, none without option, zero without targets") {
  test::Rows rows(0, 0, 6);
  TrainStepOptions options{.batch = 2, .sequence = 8, .micro_steps = 3};
  CHECK(target_weights(rows.targets.view(), options, nullptr).empty());
  options.weigh_targets = true;
  auto const weights = [&] {
    auto const found = target_weights(rows.targets.view(), options, nullptr);
    return std::vector<double>(found.begin(), found.end());
  };
  CHECK(weights() == std::vector<double>{1, 1, 1});
  for (std::int64_t t = 0; t < 8; ++t) rows.targets(0, t) = rows.targets(1, t) = rows.targets(2, t) = -1;
  CHECK(weights() == std::vector<double>{0, 1, 2});
  for (std::int64_t r = 3; r < 6; ++r)
    for (std::int64_t t = 0; t < 8; ++t) rows.targets(r, t) = -1;
  CHECK(weights() == std::vector<double>{0, 0, 0});
}
