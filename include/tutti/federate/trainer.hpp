// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a worker does its inner steps with: the one part of it that knows the model.

#include <tutti/federate/policy.hpp>
#include <tutti/federate/worker_actions.hpp>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::federate {

/// What passes between a job and who waits for it.
struct JobControl {
  std::atomic<bool> stop{false};       ///< set: end after the present step
  std::atomic<std::int64_t> steps{0};  ///< done so far
};

/// Called from one thread, which is not the one that constructed it. What it throws ends the worker, who tells the
/// shepherd why.
class Trainer {
 public:
  Trainer() = default;
  Trainer(Trainer const&) = delete;
  Trainer& operator=(Trainer const&) = delete;
  virtual ~Trainer() = default;
  /// What it computes with, for people.
  virtual std::string device() const { return "cpu"; }
  /// How many train: those behind a relay. From any thread.
  virtual std::int64_t workers() const { return 1; }
  /// Builds what `facts.program` describes, once, before the first job. Returns inner steps a second, or 0 where that
  /// is not known. Refuses programs that this machine has no memory or data for.
  virtual double prepare(Facts const& facts) = 0;
  /// The job's inner steps from `parameters`, which hold at the end what the steps made of them. Between two steps it
  /// looks at `control.stop`, and counts.
  virtual Trained train(Job const& job, std::span<float> parameters, JobControl& control) = 0;
  /// The worker has ended: whoever waits in `prepare` or `train` for something that may never come returns. From any
  /// thread.
  virtual void cancel() noexcept {}
};

}  // namespace tutti::federate
