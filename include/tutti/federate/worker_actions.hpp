// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a WorkerCore asks of the world around it, and how it comes back to a shepherd that is gone.

#include <tutti/federate/message.hpp>
#include <tutti/federate/policy.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::federate {

/// Inner steps to do. Borrowed by `train`: copy the parameters, or be done with them before the core's next event.
struct Job {
  std::uint64_t lease = 0;
  std::int64_t round = 0;
  std::span<float const> parameters;  ///< to begin from
  std::vector<Range> ranges;          ///< samples, in this order; a multiple of the batch
  std::int64_t begin = 0, end = 0;    ///< samples of the run learned from before and after this round, by all workers

  std::int64_t steps(std::int64_t batch) const noexcept { return samples_of(ranges) / batch; }
  /// Sample number k of the job. Requires k below samples_of(ranges).
  std::int64_t sample(std::int64_t k) const noexcept {
    for (Range const& range : ranges) {
      if (k < range.count) return range.first + k;
      k -= range.count;
    }
    return -1;
  }
  /// How far the run is, in samples, before inner step `step` of `steps`: what schedules of learning rates follow. All
  /// workers of a round are equally far, however many steps they take.
  double progress(std::int64_t step, std::int64_t steps) const noexcept {
    return static_cast<double>(begin) + static_cast<double>(end - begin) * static_cast<double>(step) /
                                            static_cast<double>(std::max<std::int64_t>(steps, 1));
  }
};

/// What came of a job. The parameters are borrowed.
struct Trained {
  std::uint64_t lease = 0;
  std::int64_t samples = 0;  ///< learned from: fewer than the job's where it was stopped
  double seconds = 0;
  double loss = 0;  ///< mean over the steps
  std::span<float const> parameters;
};

/// What a worker uses of its machine: processors busy since the last time, bytes; negative where it is not known.
struct WorkerUse {
  double cpu = -1;
  std::int64_t memory = -1;
  std::int64_t workers = 1;  ///< that train: those behind a relay
};

/// Called by a WorkerCore. None of them may call the core.
class WorkerActions {
 public:
  WorkerActions() = default;
  WorkerActions(WorkerActions const&) = delete;
  WorkerActions& operator=(WorkerActions const&) = delete;
  virtual ~WorkerActions() = default;
  /// `connected` or `disconnected` follows; where neither does in time, the core closes and tries again.
  virtual void connect() = 0;
  /// After what was sent. No event of this connection follows.
  virtual void close() = 0;
  virtual void send(Message const& message) = 0;
  /// `compiled` or `failed` follows.
  virtual void compile(Facts const& facts) = 0;
  /// `trained` or `failed` follows.
  virtual void train(Job const& job) = 0;
  /// The job under way ends after its present step. `trained` or `failed` follows, as without this.
  virtual void stop_training() = 0;
  /// Of the job under way, for the shepherd to know.
  virtual std::int64_t steps_done() const { return 0; }
  /// For people who watch the shepherd.
  virtual std::string device() const { return {}; }
  virtual WorkerUse use() { return {}; }
  virtual void told(std::string const& /*what*/) {}
};

/// How long to wait before the next attempt to connect: twice as long each time, and half of it by chance, so that
/// workers that have lost one shepherd do not all come back at once.
class BackOff {
 public:
  explicit BackOff(std::uint64_t seed) : seed_(seed) {}
  void reset() noexcept { attempts_ = 0; }
  Instant next() noexcept {
    double const longest =
        std::min(5.0, 0.1 * static_cast<double>(std::int64_t{1} << std::min<std::int64_t>(attempts_++, 6)));
    seed_ = (seed_ ^ (seed_ >> 31)) * 0x9e3779b97f4a7c15u + 1;
    double const chance = static_cast<double>(seed_ >> 40) / static_cast<double>(1 << 24);
    return seconds(longest * (0.5 + 0.5 * chance));
  }

 private:
  std::uint64_t seed_;
  std::int64_t attempts_ = 0;
};

}  // namespace tutti::federate
