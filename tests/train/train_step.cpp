// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/train/algorithm.hpp> <tutti/train/replica_files.hpp>
// Covers: <tutti/train/llama_files.hpp>
// Covers: <tutti/train/loop.hpp> <tutti/train/profiling.hpp>
// Covers: <tutti/train/models.hpp> <tutti/train/optimizer_choice.hpp>
// Covers: <tutti/train/sample_text.hpp>
// Covers: <tutti/train/start_table.hpp> <tutti/train/step_options.hpp>
// The loop around the step is exercised by trainer.py, as users run it.
// Covers: <tutti/train/loop_checkpoints.hpp>
// Covers: <tutti/train/loop_reports.hpp>
#include "support/catch.hpp"
#include "train/executor_suite.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/statistics.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/train/train_step.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using test::Rows;

namespace {

nn::Gpt2Config const& config = test::small_gpt2;
optim::AdamW const adamw{.weight_decay = 0.1};

struct Outcome {
  std::vector<float> losses;
  std::uint64_t hash = 0;
};

Outcome run_steps(int ranks, std::int64_t micro_steps, int threads, int steps = 5) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  threads::run(ranks, [&](Communicator<Threads>& communicator) {
    exec::Context context({.threads = threads});
    std::int64_t const share = 12 / ranks;
    TrainStep<nn::Gpt2Loss> step(
        context, config, adamw, {.batch = share / micro_steps, .sequence = 8, .micro_steps = micro_steps, .clip = 0.5});
    step.initialise(42);
    step.connect(parallel::data_parallel(communicator));
    Outcome& outcome = outcomes[static_cast<std::size_t>(communicator.rank())];
    for (int i = 0; i < steps; ++i) {
      Rows const rows(i, communicator.rank() * share, share);
      outcome.losses.push_back(step(rows.at(i), 1e-2).loss);
    }
    outcome.hash = parallel::hash(step.state());
  });
  for (Outcome const& outcome : outcomes) CHECK(outcome.losses == outcomes[0].losses);
  for (Outcome const& outcome : outcomes) CHECK(outcome.hash == outcomes[0].hash);
  return outcomes[0];
}

}  // namespace

TEST_CASE("processors train as every device does", "[train]") {
  exec::Context context({.threads = 2, .ranks_on_node = 1});
  test::ExecutorSuite<Cpu>(context, GENERATE(std::int64_t{1}, std::int64_t{3})).run();
}

TEST_CASE(
    "losses agree for every number of ranks and micro-steps, and are bitwise the same for every number of threads") {
  Outcome const reference = run_steps(1, 1, 1);
  CHECK(reference.losses.back() < reference.losses.front() - 0.1f);
  for (auto [ranks, micro_steps] :
       std::initializer_list<std::pair<int, int>>{{1, 2}, {1, 3}, {2, 1}, {2, 3}, {3, 1}, {4, 1}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    Outcome const other = run_steps(ranks, micro_steps, 1);
    for (std::size_t i = 0; i < reference.losses.size(); ++i)
      CHECK(other.losses[i] == Approx(reference.losses[i]).epsilon(1e-5));
    Outcome const again = run_steps(ranks, micro_steps, 1);
    CHECK(again.losses == other.losses);
    CHECK(again.hash == other.hash);
  }
  for (int threads : {2, 3}) CHECK(run_steps(1, 1, threads).hash == reference.hash);
}

TEST_CASE(
    "ranks with one copy of the state learn what ranks with a copy each do, bit for bit where nothing is clipped") {
  auto const outcome = [&](int ranks, std::int64_t micro_steps, double clip, parallel::Replicas replicas) {
    Outcome result;
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      auto const expect = [&](bool holds, char const* what) {
        if (!holds) wrong[static_cast<std::size_t>(communicator.rank())] += std::string(what) + "; ";
      };
      exec::Context context({.threads = 1});
      std::int64_t const share = 12 / ranks;
      TrainStep<nn::Gpt2Loss> step(
          context, config, adamw,
          {.batch = share / micro_steps, .sequence = 8, .micro_steps = micro_steps, .clip = clip});
      float const* const before = step.state()["wte"].data();
      step.connect(parallel::data_parallel(communicator, replicas));
      bool const one_copy = replicas == parallel::Replicas::per_node && ranks > 1;
      expect(step.divided() == one_copy, "divided");
      expect((step.state()["wte"].data() == before) != one_copy, "fields move");
      step.initialise(42 + static_cast<std::uint64_t>(one_copy ? communicator.rank() : 0));  // rank 0's counts
      std::vector<float> losses;
      for (int i = 0; i < 5; ++i) {
        Rows const rows(i, communicator.rank() * share, share);
        losses.push_back(step(rows.at(i), 1e-2).loss);
      }
      expect(test::contains(step.table(), "node_barrier") == one_copy, "barriers");
      expect(test::contains(step.table(), "node_sum") == one_copy, "a sum of norms");
      if (communicator.rank() == 0) {
        result.losses = losses;
        result.hash = parallel::hash(step.state());
      }
      // Of its own again, and on with the others.
      step.connect({parallel::data_parallel(communicator).port, nullptr});
      expect(!step.divided(), "each its own again");
      Rows const rows(9, communicator.rank() * share, share);
      step(rows.at(9), 1e-2);
      parallel::require_equal(*comm::port(communicator), step.state(), "after a step of its own");
    });
    for (std::string const& said : wrong) CHECK(said == "");
    return result;
  };
  for (auto [ranks, micro_steps] : std::initializer_list<std::pair<int, int>>{{2, 1}, {3, 2}, {4, 1}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    Outcome const own = outcome(ranks, micro_steps, 0, parallel::Replicas::per_rank);
    Outcome const together = outcome(ranks, micro_steps, 0, parallel::Replicas::per_node);
    CHECK(own.losses == together.losses);
    CHECK(own.hash == together.hash);
    Outcome const clipped = outcome(ranks, micro_steps, 0.5, parallel::Replicas::per_node);
    Outcome const reference = outcome(ranks, micro_steps, 0.5, parallel::Replicas::per_rank);
    for (std::size_t i = 0; i < clipped.losses.size(); ++i)
      CHECK(clipped.losses[i] == Approx(reference.losses[i]).epsilon(1e-6));
  }
}

TEST_CASE("weights that stay packed over micro-steps change no bit, and are counted as memory") {
  auto const outcome = [&](std::int64_t micro_steps, bool keep, bool together, DType compute) {
    Outcome result;
    std::int64_t bytes = 0;
    threads::run(2, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      TrainStep<nn::Gpt2Loss> step(context, config, adamw,
                                   {.batch = 6 / micro_steps, .sequence = 8, .micro_steps = micro_steps,
                                    .compute = compute, .keep_packed = keep});
      step.initialise(42);
      step.connect(parallel::data_parallel(
          communicator, together ? parallel::Replicas::per_node : parallel::Replicas::per_rank));
      std::vector<float> losses;
      for (int i = 0; i < 4; ++i) {
        Rows const rows(i, communicator.rank() * 6, 6);
        losses.push_back(step(rows.at(i), 1e-2).loss);
        losses.push_back(static_cast<float>(step.evaluate(Rows(9, 0, 6 / micro_steps).tokens.view(),
                                                          Rows(9, 0, 6 / micro_steps).targets.view())));
      }
      if (communicator.rank() != 0) return;
      result = {losses, parallel::hash(step.state())};
      bytes = step.workspace_bytes();
    });
    return std::pair(result, bytes);
  };
  for (std::int64_t micro_steps : {2, 3})
    for (bool together : {false, true})
      for (DType compute : {DType::float32, DType::bfloat16}) {
        INFO(micro_steps << " micro-steps, one copy: " << together << ", " << name(compute));
        auto const [plain, without] = outcome(micro_steps, false, together, compute);
        auto const [kept, with] = outcome(micro_steps, true, together, compute);
        CHECK(kept.losses == plain.losses);
        CHECK(kept.hash == plain.hash);
        // Twice the matrices of two layers of 16 channels.
        CHECK(with - without == 2 * 2 * 12 * 16 * 16 * static_cast<std::int64_t>(size_of(compute)));
      }
}

TEST_CASE("what the backward pass computes again changes no loss and no parameter by a bit, on one rank or two") {
  struct Given {
    int ranks;
    std::int64_t micro_steps;
    parallel::Replicas replicas;
    DType compute;
  };
  auto const outcome = [](Given const& given, graph::Recompute policy) {
    Outcome result;
    std::vector<std::int64_t> bytes(static_cast<std::size_t>(given.ranks));
    threads::run(given.ranks, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      std::int64_t const share = 12 / given.ranks;
      TrainStep<nn::Gpt2Loss> step(context, config, adamw,
                                   {.batch = share / given.micro_steps, .sequence = 8,
                                    .micro_steps = given.micro_steps, .clip = 0.5, .compute = given.compute,
                                    .recompute = policy, .keep_packed = true});
      step.initialise(42);
      step.connect(parallel::data_parallel(communicator, given.replicas));
      std::vector<float> losses;
      for (int i = 0; i < 4; ++i) {
        Rows const rows(i, communicator.rank() * share, share);
        StepResult const done = step(rows.at(i), 1e-2);
        losses.push_back(done.loss);
        losses.push_back(done.grad_norm);
      }
      bytes[static_cast<std::size_t>(communicator.rank())] = step.workspace_bytes();
      if (communicator.rank() == 0) result = {losses, parallel::hash(step.state())};
    });
    return std::pair(result, bytes[0]);
  };
  using enum parallel::Replicas;
  for (Given const& given :
       {Given{1, 1, per_rank, DType::float32}, Given{1, 3, per_rank, DType::bfloat16},
        Given{2, 2, per_node, DType::float32}, Given{2, 1, per_rank, DType::float32}}) {
    INFO(given.ranks << " ranks, " << given.micro_steps << " micro-steps, " << name(given.compute));
    auto const [none, all] = outcome(given, graph::Recompute::none);
    auto const [cheap, fewer] = outcome(given, graph::Recompute::pointwise);
    auto const [block, fewest] = outcome(given, graph::Recompute::block);
    for (Outcome const* other : {&cheap, &block}) {
      CHECK(other->losses == none.losses);
      CHECK(other->hash == none.hash);
    }
    CHECK(fewer < all);
    CHECK(fewest < fewer);
  }
}

TEST_CASE("gradients may be reduced in buckets of any size: the same bits, in more or fewer calls") {
  auto const outcome = [](parallel::Replicas replicas, std::int64_t bucket_bytes) {
    Outcome result;
    std::int64_t calls = 0;
    threads::run(2, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      TrainStep<nn::Gpt2Loss> step(context, config, adamw,
                                   {.batch = 6, .sequence = 8, .clip = 0.5, .bucket_bytes = bucket_bytes});
      step.initialise(42);
      communicator.start_statistics();
      step.connect(parallel::data_parallel(communicator, replicas));
      std::vector<float> losses;
      for (int i = 0; i < 3; ++i) {
        StepResult const done = step(Rows(i, communicator.rank() * 6, 6).at(i), 1e-2);
        losses.insert(losses.end(), {done.loss, done.grad_norm});
      }
      if (communicator.rank() != 0) return;
      result = {losses, parallel::hash(step.state())};
      Statistics const statistics = communicator.statistics();
      for (OperationStatistics const& one : statistics.operations) calls += one.calls;
    });
    return std::pair(result, calls);
  };
  for (auto const replicas : {parallel::Replicas::per_rank, parallel::Replicas::per_node}) {
    auto const [one, few] = outcome(replicas, std::int64_t{4} << 20);
    auto const [each, many] = outcome(replicas, 0);
    INFO(few << " calls, " << many << " with a bucket for each parameter");
    CHECK(each.losses == one.losses);
    CHECK(each.hash == one.hash);
    CHECK(many > few + 20);
  }
  exec::Context context({.threads = 1});
  REQUIRE_ERROR(TrainStep<nn::Gpt2Loss>(context, config, adamw, {.bucket_bytes = -1}), ErrorKind::configuration,
                "bucket_bytes must be at least 0");
}

TEST_CASE("moments may lie in files: the same bits, initialised, resumed and shared out") {
  char const* const given = std::getenv("TMPDIR");
  std::string const folder = given != nullptr ? given : "/tmp";
  auto const outcome = [](int ranks, parallel::Replicas replicas, std::int64_t micro_steps, std::string const& place) {
    Outcome result;
    std::int64_t offloaded = 0, in_memory = 0;
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      std::int64_t const share = 12 / ranks;
      TrainStep<nn::Gpt2Loss> step(context, config, adamw,
                                   {.batch = share / micro_steps, .sequence = 8, .micro_steps = micro_steps,
                                    .offload_optimizer = place});
      step.initialise(42);
      step.connect(parallel::data_parallel(communicator, replicas));
      std::vector<float> losses;
      for (int i = 0; i < 4; ++i) {
        if (i == 2) step.initialise(7);  // what was there is gone
        losses.push_back(step(Rows(i, communicator.rank() * share, share).at(i), 1e-2).loss);
      }
      step.sections().gather(*comm::port(communicator), step.state(), true);
      if (communicator.rank() != 0) return;
      offloaded = step.state().offloaded_bytes();
      in_memory = step.state_bytes();
      result = {losses, parallel::hash(step.state())};
    });
    return std::tuple(result, offloaded, in_memory);
  };
  using enum parallel::Replicas;
  for (auto const& [ranks, replicas, micro_steps] :
       {std::tuple(1, per_rank, 1), {1, per_rank, 3}, {2, per_node, 1}, {2, sharded, 2}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    auto const [memory, none, all] = outcome(ranks, replicas == per_node ? per_rank : replicas, micro_steps, "");
    auto const [files, bytes, rest] = outcome(ranks, replicas, micro_steps, folder);
    CHECK(files.losses == memory.losses);
    CHECK(files.hash == memory.hash);
    CHECK(none == 0);
    CHECK(bytes >= 2 * rest);  // two moments of a parameter
    CHECK(rest < all);
  }
  exec::Context context({.threads = 1});
  TrainStepOptions const nowhere{.sequence = 8, .offload_optimizer = "/nowhere/at/all"};
  REQUIRE_ERROR(TrainStep<nn::Gpt2Loss>(context, config, adamw, nowhere), ErrorKind::io,
                "a file in '/nowhere/at/all' (No such file or directory). Choose a folder");
}

TEST_CASE("the memory of a step of GPT-2 124M with long sequences falls to what a policy keeps") {
  exec::Context context({.threads = 1});
  nn::Gpt2Config const large{.layers = 12, .heads = 12, .channels = 768, .vocabulary = 50257,
                             .padded_vocabulary = 50304, .max_tokens = 1024};
  auto const bytes = [&](graph::Recompute policy) {
    TrainStep<nn::Gpt2Loss> step(context, large, adamw,
                                 {.batch = 4, .sequence = 1024, .clip = 1.0, .recompute = policy});
    std::int64_t const planned = step.workspace_bytes();
    std::cout << "GPT-2 124M, B 4, T 1024, recompute " << name(policy) << ": " << planned << " bytes\n";
    return planned;
  };
  std::int64_t const tensor = 4 * 1024 * 768 * 4, none = bytes(graph::Recompute::none);
  CHECK(none - bytes(graph::Recompute::pointwise) >= 11 * 6 * tensor);  // of the layer at work they are there
  CHECK(none - bytes(graph::Recompute::block) >= 10 * 15 * tensor);     // at the peak of gradients, another one
}

TEST_CASE("shares that differ give the losses of even ones, and the same bits every time") {
  Outcome const reference = run_steps(1, 1, 1);
  // 6 rows on 4 ranks, 4 on 3, 3 on 2.
  auto const uneven = [](int ranks, std::int64_t micro_steps) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      exec::Context context({.threads = 1});
      std::int64_t const rows = 12 / micro_steps, small = rows / ranks, larger = rows % ranks,
                         rank = communicator.rank();
      std::int64_t const count = small + (rank < larger), begin = rank * small + std::min(rank, larger);
      TrainStep<nn::Gpt2Loss> step(
          context, config, adamw,
          {.batch = count, .sequence = 8, .evaluation_batch = 2, .micro_steps = micro_steps,
           .weight = double(ranks * count) / double(rows), .clip = 0.5});
      step.initialise(42);
      step.connect(parallel::data_parallel(communicator));
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      for (int i = 0; i < 5; ++i) {
        Rows const mine(i, begin * micro_steps, count * micro_steps);
        outcome.losses.push_back(step(mine.at(i), 1e-2).loss);
      }
      Rows const two(9, 0, 2);
      outcome.losses.push_back(static_cast<float>(step.evaluate(two.tokens, two.targets)));
      outcome.hash = parallel::hash(step.state());
    });
    for (Outcome const& outcome : outcomes) CHECK(outcome.losses == outcomes[0].losses);
    for (Outcome const& outcome : outcomes) CHECK(outcome.hash == outcomes[0].hash);
    return outcomes[0];
  };
  for (auto [ranks, micro_steps] : std::initializer_list<std::pair<int, int>>{{4, 2}, {3, 3}, {2, 4}}) {
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    Outcome const other = uneven(ranks, micro_steps);
    for (std::size_t i = 0; i < reference.losses.size(); ++i)
      CHECK(other.losses[i] == Approx(reference.losses[i]).epsilon(1e-5));
    Outcome const again = uneven(ranks, micro_steps);
    CHECK(again.losses == other.losses);
    CHECK(again.hash == other.hash);
  }
}

TEST_CASE(
    "the first loss is log of the vocabulary, evaluation changes nothing, and impossible arguments get a sentence") {
  exec::Context context({.threads = 1});
  TrainStep<nn::Gpt2Loss> step(context, config, adamw, {.batch = 2, .sequence = 8});
  step.initialise(42);
  CHECK(step.parameter_count() == nn::parameter_count(config));
  Rows const rows(0, 0, 2);
  std::uint64_t const before = parallel::hash(step.state());
  CHECK(step.evaluate(rows.at(0).tokens, rows.at(0).targets) == Approx(std::log(20.0)).epsilon(0.02));
  CHECK(parallel::hash(step.state()) == before);
  Rows const three(0, 0, 3);
  REQUIRE_ERROR(step(three.at(0), 1e-3), ErrorKind::shape, "and must be (2, 8)");
  Rows foreign(0, 0, 2);
  foreign.tokens(1, 3) = 32;  // beyond the padding rows, too
  REQUIRE_ERROR(step(foreign.at(0), 1e-3), ErrorKind::out_of_range, "32");
  CHECK(step(rows.at(0), 1e-3).loss == Approx(std::log(20.0)).epsilon(0.02));
  CHECK(step.updates() == 1);
  CHECK(test::contains(step.table(), "adamw"));
  using Step = TrainStep<nn::Gpt2Loss>;
  REQUIRE_ERROR(Step(context, config, adamw, {.batch = 0}), ErrorKind::configuration, "at least 1");
  REQUIRE_ERROR(Step(context, config, adamw, {.weight = 0}), ErrorKind::configuration, "weight");
  REQUIRE_ERROR(Step(context, config, adamw, {.compute = DType::float16}), ErrorKind::unavailable,
                "matrix products in float16 are not there. Use float32 or bfloat16");
}

TEST_CASE("200 steps with products in bfloat16 learn as in float32: losses within one percent") {
  exec::Context context({.threads = 2});
  nn::Gpt2Config const small{
      .layers = 2, .heads = 2, .channels = 32, .vocabulary = 60, .padded_vocabulary = 64, .max_tokens = 16};
  auto const losses = [&](DType compute, std::uint64_t seed) {
    TrainStep<nn::Gpt2Loss> step(context, small, adamw,
                                 {.batch = 8, .sequence = 16, .clip = 1.0, .compute = compute});
    step.initialise(seed);
    std::vector<double> all;
    Tensor<std::int32_t> tokens(Shape{8, 16}), targets(Shape{8, 16});
    for (std::int64_t i = 0; i < 200; ++i) {
      // Sequences that count in steps of their own, modulo 60: something to learn, not at once.
      for (std::int64_t r = 0; r < 8; ++r)
        for (std::int64_t t = 0; t < 16; ++t) {
          std::int64_t const start = (i * 31 + r * 17) % 60, pace = 1 + (i + r) % 5;
          tokens(r, t) = static_cast<std::int32_t>((start + pace * t) % 60);
          targets(r, t) = static_cast<std::int32_t>((start + pace * (t + 1)) % 60);
        }
      all.push_back(double{step({i, tokens.view(), targets.view()}, 3e-3).loss});
    }
    return all;
  };
  // A run that leaves a plateau some steps earlier differs by more while it does: the middle one of five counts.
  std::vector<double> worst;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    std::vector<double> const exact = losses(DType::float32, seed), rounded = losses(DType::bfloat16, seed);
    INFO("seed " << seed << ", last losses " << exact.back() << " and " << rounded.back());
    CHECK(exact != rounded);
    CHECK(exact.back() < exact.front() / 2);
    double most = 0;
    for (std::size_t i = 9; i < exact.size(); ++i) {  // means of ten steps, as a curve is read
      double a = 0, b = 0;
      for (std::size_t j = i - 9; j <= i; ++j) a += exact[j], b += rounded[j];
      most = std::max(most, std::abs(b / a - 1));
    }
    CHECK(most < 0.05);
    worst.push_back(most);
  }
  std::sort(worst.begin(), worst.end());
  INFO("largest differences from " << worst.front() << " to " << worst.back());
  CHECK(worst[2] < 0.01);
}

// A hook for a single parameter is taken beside one for all of them, of the same configuration.
namespace own_hooks {
struct OfBase : nn::Gpt2Config {};
[[maybe_unused]] inline void initialise_parameters(OfBase const&, graph::State&, std::uint64_t) {}
struct Both {};
[[maybe_unused]] inline void initialise_parameters(Both const&, graph::State&, std::uint64_t) {}
[[maybe_unused]] inline void initialise_parameter(Both const&, graph::Field&, std::uint64_t) {}
struct All {};
[[maybe_unused]] inline void initialise_parameters(All const&, graph::State&, std::uint64_t) {}
struct None {};
static_assert(!initialises_one_by_one<OfBase> && !initialises_one_by_one<All>);
static_assert(initialises_one_by_one<Both> && initialises_one_by_one<None> && initialises_one_by_one<nn::Gpt2Config>);
}  // namespace own_hooks
