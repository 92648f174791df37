// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How many inner steps each worker takes in a round, so that all are done at about the same time.

#include <tutti/federate/policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace tutti::federate {

/// What was measured of a worker.
struct Pace {
  double speed = 0;     ///< inner steps a second; 0: not known yet
  double overhead = 0;  ///< seconds of a round that are not inner steps: parameters come, the gradient goes
  double workers = 1;   ///< that take its steps together, where it is a relay

  /// Of one more round. The newest counts half, so that a worker that slows down is known within two rounds.
  void measure(std::int64_t steps, double training, double round) {
    if (steps < 1 || !(training > 0) || !std::isfinite(training)) return;
    double const now = static_cast<double>(steps) / training;
    speed = speed > 0 ? 0.5 * speed + 0.5 * now : now;
    double const rest = std::max(0.0, round - training);
    overhead = measured_ ? 0.5 * overhead + 0.5 * rest : rest;
    measured_ = true;
  }

 private:
  bool measured_ = false;
};

/// A round of T seconds has speed * (T - overhead) steps of a worker. T is chosen so that the workers take
/// `inner_steps` on average, and each stays within the policy's bounds. Of whom nothing is known, the mean is assumed.
/// A relay counts as the workers behind it.
class Plan {
 public:
  Plan(std::span<Pace const> workers, Policy const& policy) : inner_(static_cast<double>(policy.inner_steps)) {
    double speeds = 0, overheads = 0, known = 0, lost = 0, all = 0;
    for (Pace const& pace : workers) {
      all += pace.workers;
      if (!(pace.speed > 0)) continue;
      speeds += pace.speed;
      overheads += pace.overhead * pace.workers;
      known += pace.workers;
      lost += pace.speed * pace.overhead;
    }
    least_ = std::max<std::int64_t>(1, std::llround(policy.slowest * inner_));
    most_ = std::max(least_, static_cast<std::int64_t>(std::llround(policy.fastest * inner_)));
    if (known == 0) return;
    mean_.speed = speeds / known;
    mean_.overhead = overheads / known;
    double const others = all - known;
    seconds_ = (all * inner_ + lost + others * mean_.speed * mean_.overhead) / (speeds + others * mean_.speed);
  }

  /// That the round takes; 0 where no speed is known.
  double seconds() const noexcept { return seconds_; }
  /// At least 1.
  std::int64_t steps(Pace const& worker) const noexcept {
    if (seconds_ == 0) return std::llround(inner_ * worker.workers);
    bool const known = worker.speed > 0;
    double const speed = known ? worker.speed : mean_.speed * worker.workers;
    double const steps = speed * (seconds_ - (known ? worker.overhead : mean_.overhead));
    std::int64_t const most = std::llround(static_cast<double>(most_) * worker.workers);
    return std::clamp(static_cast<std::int64_t>(std::llround(std::clamp(steps, 0.0, 1e12))), least_, most);
  }

 private:
  double inner_, seconds_ = 0;
  std::int64_t least_ = 1, most_ = 1;
  Pace mean_;  // of one worker
};

}  // namespace tutti::federate
