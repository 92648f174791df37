// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A training step on a device beside the same step on processors.
// Covers: <tutti/train/cuda/execution.hpp> <tutti/train/execution.hpp>
// Covers: <tutti/train/cuda/machine.hpp> <tutti/train/machine.hpp>
// The machine is exercised by trainer.py, as users run it.

#include "cuda/support.hpp"
#include "support/catch.hpp"
#include "train/executor_suite.hpp"
#include "train/small_batches.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/optim.hpp>
#include <tutti/train/cuda/execution.hpp>
#include <tutti/train/train_step.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace tutti;
using namespace tutti::train;
using test::Rows;
using test::cuda_context;

namespace {

nn::Gpt2Config const& config = test::small_gpt2;
optim::AdamW const adamw{.weight_decay = 0.1};
constexpr kernel::cuda::BlasOptions little{.workspace = std::size_t{1} << 16};

TrainStepOptions options(std::int64_t batch, std::int64_t micro_steps = 1, DType compute = DType::float32) {
  TrainStepOptions result;
  result.batch = batch;
  result.sequence = 8;
  result.micro_steps = micro_steps;
  result.clip = 0.5;
  result.compute = compute;
  return result;
}

struct Outcome {
  std::vector<float> losses, norms;
  std::vector<double> exposed_ms;
  std::uint64_t hash = 0;
  double validation = 0;

  void add(StepResult const& result) {
    losses.push_back(result.loss);
    norms.push_back(result.grad_norm);
    exposed_ms.push_back(result.exposed_comm_ms);
  }
};

template <class Device>
Outcome run_steps(typename Execution<Device>::Context& context, TrainStepOptions const& of, int steps,
                  optim::AnyOptimizer const& optimizer = adamw, nn::Gpt2Config const& model = config) {
  TrainStep<nn::Gpt2Loss, Device> step(context, model, optimizer, of);
  step.initialise(42);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    Rows const rows(i, 0, of.batch * of.micro_steps);
    outcome.add(step(rows.at(i), 1e-2));
    CHECK(outcome.exposed_ms.back() == 0);
  }
  Rows const held_out(100, 3, of.batch);
  outcome.validation = step.evaluate(held_out.tokens.view(), held_out.targets.view());
  outcome.hash = parallel::hash(step.state());
  return outcome;
}
Outcome on_device(TrainStepOptions const& of, int steps) {
  kernel::cuda::Blas blas(cuda_context(), little);
  return run_steps<Cuda>(blas, of, steps);
}
Outcome on_processors(TrainStepOptions const& of, int steps) {
  exec::Context context({.threads = 1});
  return run_steps<Cpu>(context, of, steps);
}

}  // namespace

TEST_CASE("a device trains as every device does") {
  kernel::cuda::Blas blas(cuda_context(), little);
  test::ExecutorSuite<Cuda>(blas, 1).run();
}

TEST_CASE("losses of twenty steps on a device are within 1e-4 of those on processors, and bitwise the same again") {
  Outcome const device = on_device(options(4), 20), again = on_device(options(4), 20),
                processors = on_processors(options(4), 20);
  CHECK(device.losses.back() < device.losses.front() - 0.5f);
  for (std::size_t i = 0; i < device.losses.size(); ++i) {
    INFO("step " << i);
    CHECK(device.losses[i] == Approx(processors.losses[i]).margin(1e-4));
    CHECK(device.norms[i] == Approx(processors.norms[i]).epsilon(1e-3));
  }
  CHECK(device.validation == Approx(processors.validation).margin(1e-4));
  CHECK(device.losses == again.losses);
  CHECK(device.hash == again.hash);
}

TEST_CASE("every optimizer moves parameters on a device as on processors, and dropout drops the same") {
  nn::Gpt2Config dropped = config;
  dropped.dropout = 0.2;
  dropped.attention_dropout = 0.1;
  optim::AnyOptimizer const optimizers[]{optim::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
                                         optim::Muon{.weight_decay = 0.1}};
  for (DType compute : {DType::float32, DType::bfloat16})
    for (optim::AnyOptimizer const& optimizer : optimizers) {
      INFO(optimizer.describe() << " in " << name(compute));
      TrainStepOptions const of = options(2, 2, compute);
      exec::Context processors({.threads = 1});
      kernel::cuda::Blas blas(cuda_context(), little);
      Outcome const expected = run_steps<Cpu>(processors, of, 4, optimizer, dropped),
                    found = run_steps<Cuda>(blas, of, 4, optimizer, dropped);
      double const bound = compute == DType::float32 ? 1e-4 : 1e-2;
      for (std::size_t i = 0; i < expected.losses.size(); ++i)
        CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(bound));
      CHECK(found.validation == Approx(expected.validation).epsilon(bound));
    }
}

TEST_CASE("documents that are kept apart, with targets that are weighed, train on a device as on processors") {
  nn::Gpt2Config packed = config;
  packed.document_mark = 3;
  TrainStepOptions of = options(2, 2);
  of.weigh_targets = true;
  exec::Context processors({.threads = 1});
  kernel::cuda::Blas blas(cuda_context(), little);
  Outcome const expected = run_steps<Cpu>(processors, of, 4, adamw, packed),
                found = run_steps<Cuda>(blas, of, 4, adamw, packed), apart = run_steps<Cpu>(processors, of, 4);
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-4));
  CHECK(found.validation == Approx(expected.validation).epsilon(1e-4));
  CHECK(expected.losses != apart.losses);  // there are several documents in a row
}

TEST_CASE("micro-steps on a device add up to the step") {
  Outcome const whole = on_device(options(6), 4), processors = on_processors(options(2, 3), 4);
  for (std::int64_t const micro_steps : {2, 3, 6}) {
    Outcome const parts = on_device(options(6 / micro_steps, micro_steps), 4);
    for (std::size_t i = 0; i < parts.losses.size(); ++i) {
      CHECK(parts.losses[i] == Approx(whole.losses[i]).epsilon(1e-5));
      CHECK(parts.losses[i] == Approx(processors.losses[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("gradients measured on a device are like those on processors, and steps do not notice") {
  TrainStepOptions const of = options(2, 2);
  auto const measure = [&]<class Device>(Device, typename Execution<Device>::Context& context, Outcome& outcome) {
    TrainStep<nn::Gpt2Loss, Device> step(context, config, adamw, of);
    step.initialise(42);
    GradientStatistics found;
    for (int i = 0; i < 3; ++i) {
      Rows const rows(i, 0, 4);
      if (i != 1) found = step.gradient_statistics(rows.at(i));
      outcome.add(step(rows.at(i), 1e-2));
    }
    step.state()["wpe"](0, 0) = std::nanf("");
    CHECK(test::contains(step.gradient_statistics(Rows(3, 0, 4).at(3)).not_finite,
                         "parameter 'wpe' is not finite before the step"));
    return found;
  };
  exec::Context context({.threads = 1});
  kernel::cuda::Blas blas(cuda_context(), little);
  Outcome processors, device;
  GradientStatistics const expected = measure(Cpu(), context, processors), found = measure(Cuda(), blas, device);
  CHECK(device.losses == on_device(of, 3).losses);
  CHECK(found.norm == Approx(device.norms.back()).epsilon(1e-5));
  REQUIRE(found.parameters.size() == expected.parameters.size());
  for (std::size_t i = 0; i < found.parameters.size(); ++i) {
    INFO(found.parameters[i].name);
    CHECK(found.parameters[i].name == expected.parameters[i].name);
    CHECK(found.parameters[i].norm == Approx(expected.parameters[i].norm).epsilon(1e-3).margin(1e-5));
    // The gradient of the keys' bias is rounding alone, so that a few of its sums are 0 on one device and not on
    // another.
    double const rounding = found.parameters[i].name == "blocks.qkv.bias" ? 0.04 : 0.01;
    CHECK(found.parameters[i].zeros == Approx(expected.parameters[i].zeros).margin(rounding));
  }
}

TEST_CASE("products in bfloat16 on a device stay near those on processors") {
  Outcome const device = on_device(options(4, 1, DType::bfloat16), 10),
                processors = on_processors(options(4, 1, DType::bfloat16), 10);
  for (std::size_t i = 0; i < device.losses.size(); ++i)
    CHECK(device.losses[i] == Approx(processors.losses[i]).epsilon(0.01));
}

TEST_CASE("a step on a device is started before the one before is finished, with the same losses") {
  Outcome const expected = on_device(options(2, 2), 6);
  kernel::cuda::Blas blas(cuda_context(), little);
  TrainStep<nn::Gpt2Loss, Cuda> step(blas, config, adamw, options(2, 2));
  REQUIRE_ERROR(step.finish(), ErrorKind::invalid_argument, "no step is under way");
  step.initialise(42);
  std::vector<float> losses;
  for (int i = 0; i < 6; ++i) {
    Rows const rows(i, 0, 4);
    step.start(rows.at(i), 1e-2);
    if (i == 0) continue;
    if (i == 1) {
      REQUIRE_ERROR(step.start(rows.at(i), 1e-2), ErrorKind::invalid_argument, "two steps are under way");
    }
    losses.push_back(step.finish().loss);
  }
  losses.push_back(step.finish().loss);
  CHECK(losses == expected.losses);
  CHECK(parallel::hash(step.state()) != 0);
}

TEST_CASE("ranks that are threads average their gradients through the host, also one step late") {
  Outcome const whole = on_device(options(4), 5);
  for (int const form : {0, 1, 2, 3}) {
    int const ranks = form < 2 ? 2 : 4;
    bool const late = form % 2 == 1;
    CAPTURE(ranks, late);
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](Communicator<Threads>& communicator) {
      kernel::cuda::Context context(0);
      kernel::cuda::Blas blas(context, little);
      std::int64_t const share = 4 / ranks;
      TrainStep<nn::Gpt2Loss, Cuda> step(blas, config, adamw, options(share));
      step.initialise(42);
      step.connect(parallel::data_parallel(communicator));
      Outcome& outcome = outcomes[static_cast<std::size_t>(communicator.rank())];
      for (int i = 0; i < 5; ++i) {
        Rows const rows(i, communicator.rank() * share, share);
        step.start(rows.at(i), 1e-2);
        if (!late || i > 0) outcome.add(step.finish());
      }
      if (late) outcome.add(step.finish());
      outcome.hash = parallel::hash(step.state());
      parallel::require_equal(*comm::port(communicator), step.state(), "after steps on devices");
    });
    for (Outcome const& outcome : outcomes) {
      CHECK(outcome.hash == outcomes[0].hash);
      for (double const ms : outcome.exposed_ms) CHECK(ms > 0);
    }
    for (std::size_t i = 0; i < 5; ++i) CHECK(outcomes[0].losses[i] == Approx(whole.losses[i]).epsilon(1e-5));
  }
}

TEST_CASE("a token that is none in one micro-step is an error, and the step updates nothing") {
  kernel::cuda::Blas blas(cuda_context(), little);
  TrainStep<nn::Gpt2Loss, Cuda> step(blas, config, adamw, options(1, 3));
  step.initialise(42);
  Rows const good(0, 0, 3);
  step(good.at(0), 1e-2);
  for (std::int64_t const row : {0, 1, 2}) {
    std::uint64_t const before = parallel::hash(step.state());
    Rows bad(1, 0, 3);
    bad.tokens(row, 5) = 77;
    REQUIRE_ERROR(step(bad.at(1), 1e-2), ErrorKind::out_of_range, "token 77");
    CHECK(parallel::hash(step.state()) == before);
    step(good.at(2), 1e-2);
    CHECK(parallel::hash(step.state()) != before);
  }
}

TEST_CASE("what is written into the state between steps counts in the next one") {
  kernel::cuda::Blas blas(cuda_context(), little);
  TrainStep<nn::Gpt2Loss, Cuda> a(blas, config, adamw, options(2)), b(blas, config, adamw, options(2));
  a.initialise(1);
  b.initialise(2);
  Rows const rows(0, 0, 2);
  a(rows.at(0), 1e-2);
  for (graph::Field const& field : a.state().fields())
    std::memcpy(b.state().at(field.name).data(), field.data(), static_cast<std::size_t>(field.bytes()));
  b.set_updates(a.updates());
  for (int i = 1; i < 3; ++i) CHECK(a(rows.at(i), 1e-2).loss == b(rows.at(i), 1e-2).loss);
  CHECK(parallel::hash(a.state()) == parallel::hash(b.state()));
}
