// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The round that is open: since when, what was delivered to it, when it closes, and what it comes to.

#include <tutti/federate/history.hpp>
#include <tutti/federate/merge.hpp>
#include <tutti/federate/policy.hpp>
#include <tutti/federate/shepherd_actions.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::federate {

class Round {
 public:
  explicit Round(Policy const& policy) : policy_(policy) {}

  /// `planned` seconds; 0 where that is not known.
  void open(Instant now, double planned) {
    opened_ = now;
    planned_ = planned;
  }
  bool empty() const noexcept { return contributions_.empty(); }
  std::int64_t delivered() const noexcept { return static_cast<std::int64_t>(contributions_.size()); }
  /// Contributions from which on it may close, with `missing` workers still at work.
  std::int64_t quorum(std::int64_t missing) const noexcept {
    return static_cast<std::int64_t>(
        std::ceil(policy_.quorum * static_cast<double>(delivered() + missing) - 1e-9));
  }
  bool holds(std::uint64_t lease) const {
    return std::any_of(contributions_.begin(), contributions_.end(), [&](auto const& c) { return c.lease == lease; });
  }
  void add(Contribution contribution) { contributions_.push_back(std::move(contribution)); }

  /// Of its planned time, what is left for one who begins now; 1 where no time is planned.
  double left(Instant now) const noexcept { return planned_ > 0 ? 1 - in_seconds(now - opened_) / planned_ : 1; }
  /// The end of the grace window, while it is open. It is not over before the others can be done as planned: a quorum
  /// that is there early, as by one who leaves with what it has, makes nobody late.
  std::optional<Instant> deadline() const {
    if (!quorum_) return std::nullopt;
    Instant const window =
        policy_.grace > 0 ? seconds(policy_.grace) : std::max(policy_.heartbeat, (*quorum_ - opened_) / 2);
    return std::max(*quorum_, opened_ + seconds(planned_)) + window;
  }
  /// Whether the round closes now, with `missing` workers still at work.
  bool due(std::int64_t missing, Instant now) {
    if (contributions_.empty()) return false;
    if (missing == 0) return true;
    if (delivered() < quorum(missing)) {
      quorum_.reset();
      return false;
    }
    if (!quorum_) quorum_ = now;
    return now >= *deadline();
  }
  /// Takes out those that are too long, in the order of their leases. The median one stays.
  std::vector<Contribution> take_too_long() {
    std::sort(contributions_.begin(), contributions_.end(),
              [](auto const& a, auto const& b) { return a.lease < b.lease; });
    std::vector<std::size_t> const wrong = too_long(contributions_, policy_.norm_limit);
    std::vector<Contribution> taken;
    for (std::size_t i = wrong.size(); i-- > 0;) {
      taken.push_back(std::move(contributions_[wrong[i]]));
      contributions_.erase(contributions_.begin() + static_cast<std::ptrdiff_t>(wrong[i]));
    }
    std::reverse(taken.begin(), taken.end());
    return taken;
  }

  struct Outcome {
    Closed record;       ///< without the checksum
    RoundReport report;  ///< without what only the shepherd knows
    std::vector<float> gradient;
  };
  /// Requires: not empty.
  Outcome outcome(std::int64_t round, Facts const& facts, Instant now) const {
    Outcome out;
    out.record.round = round;
    out.report.round = round + 1;
    out.report.seconds = in_seconds(now - opened_);
    std::vector<double> weights;
    for (Contribution const& one : contributions_) {
      std::int64_t const late = round - one.round;
      weights.push_back(weight_of(one.samples, facts.sequence, late, policy_.discount));
      out.record.merged.push_back({one.lease, one.samples, one.round, weights.back()});
      out.report.samples += one.samples;
      out.report.training += one.seconds;
      out.report.loss += one.loss * static_cast<double>(one.samples);
      out.report.late += late > 0 ? 1 : 0;
    }
    out.report.loss /= static_cast<double>(out.report.samples);
    out.report.workers = static_cast<int>(contributions_.size());
    out.record.loss = out.report.loss;
    out.gradient.resize(static_cast<std::size_t>(facts.size_of(round)));
    average(contributions_, weights, policy_.trim, out.gradient);
    return out;
  }
  /// Empty again. Returns what was in it.
  std::vector<Contribution> close() {
    quorum_.reset();
    return std::exchange(contributions_, {});
  }

 private:
  Policy policy_;
  std::vector<Contribution> contributions_;
  Instant opened_{0};
  double planned_ = 0;
  std::optional<Instant> quorum_;  // since when it is there
};

}  // namespace tutti::federate
