// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Who gets how many samples: when a round opens, and when somebody joins it.

#include <tutti/federate/member.hpp>
#include <tutti/federate/pacing.hpp>
#include <tutti/federate/policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace tutti::federate {

struct Shares {
  double seconds = 0;                                           ///< that the round takes; 0 where no speed is known
  std::vector<std::pair<std::uint64_t, std::int64_t>> samples;  ///< by worker, whole batches
};

namespace detail {
/// From steps, `wanted` in all, to samples, whole batches, of which there are so many free.
inline void fit(Shares& shares, double wanted, std::int64_t free, Facts const& facts) {
  double const there = static_cast<double>(free) / static_cast<double>(facts.batch);
  for (auto& [worker, samples] : shares.samples) {
    double const steps = static_cast<double>(samples) * std::min(1.0, there / wanted);
    samples = static_cast<std::int64_t>(std::ceil(steps - 1e-9)) * facts.batch;
  }
}
}  // namespace detail

/// For every worker that can be given work. `left` is the part of the round's time that is left for it; `opens`: a
/// round begins, and its time is planned for these workers alone. Where fewer than all samples are left, all share
/// them in the same proportions.
inline Shares share_out(std::map<std::uint64_t, Member> const& members, std::int64_t round, bool opens, double left,
                        std::int64_t free, Facts const& facts, Policy const& policy) {
  std::vector<Pace> paces;
  for (auto const& [worker, member] : members)
    if (member.idle(round) || (!opens && member.ready && !member.leaving)) paces.push_back(member.pace);
  Plan const plan(paces, policy);
  Shares shares;
  shares.seconds = plan.seconds();
  double wanted = 0;
  for (auto const& [worker, member] : members) {
    if (!member.idle(round)) continue;
    double const steps = std::max(1.0, std::round(left * static_cast<double>(plan.steps(member.pace))));
    shares.samples.emplace_back(worker, static_cast<std::int64_t>(steps));
    wanted += steps;
  }
  detail::fit(shares, wanted, free, facts);
  return shares;
}

/// The same for a round before which nobody waits: for each of `idle`, with the speed that it has among `all`.
inline Shares share_ahead(std::vector<Pace> const& all, std::vector<std::pair<std::uint64_t, Pace>> const& idle,
                          std::int64_t free, Facts const& facts, Policy const& policy) {
  Plan const plan(all, policy);
  Shares shares;
  shares.seconds = plan.seconds();
  double wanted = 0;
  for (auto const& [worker, pace] : idle) {
    shares.samples.emplace_back(worker, plan.steps(pace));
    wanted += static_cast<double>(shares.samples.back().second);
  }
  detail::fit(shares, wanted, free, facts);
  return shares;
}

}  // namespace tutti::federate
