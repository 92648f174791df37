// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What every model of train::Executor does alike: a small GPT-2 trains on a device as it does on processors, its state
/// passes from one to the other in the midst of it, and mistakes are told.

#include "support/catch.hpp"
#include "train/small_batches.hpp"

#include <tutti/nn/gpt2.hpp>
#include <tutti/nn/gpt2_state.hpp>
#include <tutti/train/train_step.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti::test {

// Member by member, and outside of the template, for nvcc.
inline optim::AdamW suite_optimizer() {
  optim::AdamW made;
  made.weight_decay = 0.1;
  return made;
}
inline exec::ContextOptions suite_host() {
  exec::ContextOptions made;
  made.threads = 1;
  made.ranks_on_node = 1;
  return made;
}

template <class Device>
class ExecutorSuite {
 public:
  using Context = typename train::Execution<Device>::Context;

  explicit ExecutorSuite(Context& context, std::int64_t micro_steps = 1)
      : micro_steps_(micro_steps),
        step_(context, small_gpt2, suite_optimizer(), options()),
        oracle_(host_, small_gpt2, suite_optimizer(), options()) {
    step_.initialise(42);
    oracle_.initialise(42);
  }

  void run() {
    std::int64_t done = 0;
    auto const both = [&](int steps) {
      for (int i = 0; i < steps; ++i, ++done) compare(done);
    };
    INFO("micro-steps: " << micro_steps_);
    both(3);
    SECTION("evaluation gives the same loss, and changes nothing") {
      Rows const rows(99, 0, rows_of_micro_step);
      double const found = step_.evaluate(rows.tokens.view(), rows.targets.view());
      CHECK(found == Approx(oracle_.evaluate(rows.tokens.view(), rows.targets.view())).epsilon(tolerance));
      CHECK(step_.evaluate(rows.tokens.view(), rows.targets.view()) == found);
      both(1);
    }
    SECTION("state that the host reads is that of the step, and what it writes is read back") {
      compare_states();
      copy(step_.state(), oracle_.state());  // as a checkpoint does
      both(2);
      copy(oracle_.state(), step_.state());
      both(2);
      compare_states();
    }
    SECTION("a token outside the vocabulary is refused, and steps go on behind it") {
      Rows rows(done, 0, batch());
      rows.tokens(1, 2) = 32;
      REQUIRE_ERROR(step_(rows.at(done), 1e-2), ErrorKind::out_of_range, "32");
      copy(oracle_.state(), step_.state());  // of a step of several micro-steps some were done
      step_.set_updates(oracle_.updates());
      both(2);
    }
    SECTION("closed and prepared again it goes on where it was") {
      step_.connect({});
      both(2);
      compare_states();
    }
  }

 private:
  static constexpr std::int64_t rows_of_micro_step = 4;
  static constexpr double tolerance = 1e-4;

  std::int64_t batch() const { return rows_of_micro_step * micro_steps_; }
  train::TrainStepOptions options() const {
    train::TrainStepOptions all;
    all.batch = rows_of_micro_step;
    all.sequence = 8;
    all.micro_steps = micro_steps_;
    all.clip = 0.5;
    return all;
  }
  void compare(std::int64_t i) {
    Rows const rows(i, 0, batch());
    train::StepResult const got = step_(rows.at(i), 1e-2), want = oracle_(rows.at(i), 1e-2);
    INFO("step " << i);
    CHECK(got.loss == Approx(want.loss).epsilon(tolerance));
    CHECK(got.grad_norm == Approx(want.grad_norm).epsilon(10 * tolerance));
  }
  void compare_states() {
    for (graph::Field const& field : oracle_.state().fields()) {
      // A bias of keys moves no loss: its gradient is what rounding leaves, of which AdamW makes whole steps.
      if (field.name.find("qkv.bias") != field.name.npos || field.dtype != DType::float32) continue;
      auto const want = field.template view<float>().elements(), got = step_.state()[field.name].elements();
      float most = 0, off = 0;
      for (std::size_t k = 0; k < want.size(); ++k) {
        most = std::max(most, std::abs(want[k]));
        off = std::max(off, std::abs(got[k] - want[k]));
      }
      INFO(field.name);
      CHECK(off <= 20 * static_cast<float>(tolerance) * most);
    }
  }
  static void copy(graph::State& from, graph::State& to) {
    for (graph::Field& field : to.fields())
      if (graph::Field const* const source = from.find(field.name))
        std::memcpy(field.data(), source->data(), static_cast<std::size_t>(field.bytes()));
  }

  exec::Context host_{suite_host()};
  std::int64_t micro_steps_;
  train::TrainStep<nn::Gpt2Loss, Device> step_;
  train::TrainStep<nn::Gpt2Loss> oracle_;
};

}  // namespace tutti::test
