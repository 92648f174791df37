// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd does that is the relay of a group: to another shepherd the group is one worker, whose leases its own
/// workers share. What they have learned is averaged here, and goes on as one contribution.

#include <tutti/federate/shepherd_core.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::federate {

/// A relay's parameters, which move by what was learned, as far as it goes.
struct MeanModel final : OuterModel {
  std::vector<float> at;
  std::span<float> parameters() override { return at; }
  std::span<float> momentum() override { return {}; }
  void step(int, std::span<float const> gradient) override {
    for (std::size_t i = 0; i < at.size(); ++i) at[i] -= gradient[i];
  }
};

inline void ShepherdCore::lend(std::vector<Range> const& ranges, Learned learned, Instant now) {
  constexpr char const* why = "its samples were taken back";
  for (Contribution const& one : open_.close())
    if (auto const found = members_.find(one.worker); found != members_.end())
      settle(found->second, one.lease, false, why);
  for (auto& [worker, member] : members_)
    if (std::uint64_t const lease = member.lease; lease != 0) {
      return_leases(member, why);
      settle(member, lease, false, why);
    }
  history_.lend(ranges);
  learned_ = learned;
  checksum_ = hash_bytes(std::as_bytes(model_.parameters()));
  // One round is to be enough for all of it: a little more is planned than there is, and shared out in proportion.
  double const steps = static_cast<double>(ledger().free()) / static_cast<double>(facts_.batch);
  policy_.inner_steps = std::max<std::int64_t>(
      1, std::llround(1.1 * steps / static_cast<double>(std::max<std::int64_t>(ready(), 1))) + 1);
  opening_ = true;
  proceed(now);
}

inline std::int64_t ShepherdCore::ready() const {
  double count = 0;
  for (auto const& [worker, member] : members_)
    if (facts_.streams() ? member.usable() : member.ready && !member.leaving && member.peer)
      count += member.pace.workers;
  return static_cast<std::int64_t>(count);
}

/// In the run's samples, when so many of those that there are were learned from.
inline std::int64_t ShepherdCore::position(std::int64_t committed) const {
  if (!policy_.relays) return committed;
  double const share = static_cast<double>(committed) / static_cast<double>(ledger().samples());
  return learned_.before + std::llround(share * static_cast<double>(learned_.after - learned_.before));
}

}  // namespace tutti::federate
