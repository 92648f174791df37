// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// One round: one contender runs one case for some samples. The same loop times every contender, in threads and in
/// processes. A sample is one call, or a batch of calls where a call is so short that reading the clock would count.
/// Ranks leave a barrier before each sample; each times its own calls; a sample's time is that of its slowest rank.

#include "arena.hpp"
#include "case.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace tutti::bench {

/// `ours` on the crew's backend; `raw` MPI; `raw_sum`, the same with MPI_SUM where the operator is a callable; `naive`
/// over std::barrier; every rank copying its message at the same time, with memcpy or with streaming stores.
enum class Contender : std::uint8_t { ours, raw, raw_sum, naive, copy, stream };
constexpr std::string_view name(Contender contender) {
  constexpr std::string_view names[] = {"tutti", "MPI", "MPI_SUM", "naive", "memcpy", "streamed copy"};
  return names[static_cast<std::size_t>(contender)];
}

enum class Action : std::uint8_t { prepare, verify, measure, stop };

/// How long and how often. A contender's first round settles its counts, the later ones keep them.
struct Plan {
  std::int32_t samples = 20;    ///< at most, in one round
  std::int32_t batch = 0;       ///< calls in one sample; 0: as many as the shortest sample needs
  std::int32_t warmup = 5;      ///< calls before the first sample
  std::int32_t again = 0;       ///< calls before the first sample of a later round; 0 until the first has settled it
  double limit_seconds = 0.02;  ///< of one round, as far as three samples allow
};

struct Command {
  Action action = Action::stop;
  Contender contender = Contender::ours;
  Case what{};
  Plan plan{};
};

/// On the rank that asked.
struct Result {
  bool exists = true;             ///< false where the contender has no such operation
  std::int64_t wrong = 0;         ///< elements, over all ranks
  Plan plan{};                    ///< with its counts chosen
  std::vector<double> seconds{};  ///< of one call, one for each sample
};

/// One operation of a contender, with everything but the place resolved; empty where there is no such operation.
using Call = std::function<void(Slot const&)>;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Team: `sync()`, a barrier, and `max(double)`, the same on every rank.
template <class Team>
std::vector<double> measure(Team& team, Arena& arena, Call const& call, Case const& what, Plan& plan) {
  auto const timed = [&](int calls) {
    team.sync();
    double const begin = now();
    for (int i = 0; i < calls; ++i) call(arena.next(what));
    return (now() - begin) / calls;
  };
  // In one place also where calls are cold: it brings code into the caches and ranks onto processors of their own.
  auto const warm_up = [&](int calls) {
    Slot const place = arena.next(what);
    team.sync();
    for (int i = 0; i < calls; ++i) call(place);
  };
  constexpr double shortest_sample = 20e-6, shortest_warmup = 1e-3;
  warm_up(std::max(1, plan.again));
  if (plan.again == 0) {
    double once = team.max(timed(1));
    int const more = std::clamp(static_cast<int>(plan.limit_seconds / once), 0, plan.warmup);
    if (more > 0) once = std::min(once, team.max(timed(more)));
    // The least of a few: whoever else uses the processors must not settle the batch.
    if (once < shortest_sample)
      for (int attempt = 0; attempt < 3; ++attempt) once = std::min(once, team.max(timed(64)));
    if (plan.batch == 0) plan.batch = std::clamp(static_cast<int>(std::ceil(shortest_sample / once)), 1, 256);
    double const affordable = std::clamp(plan.limit_seconds / (once * plan.batch), 3.0, 1e6);
    plan.samples = std::min(plan.samples, static_cast<int>(affordable));
    plan.again = std::clamp(static_cast<int>(shortest_warmup / once), 1, 4096);
    warm_up(plan.again);
  }
  std::vector<double> seconds(static_cast<std::size_t>(plan.samples));
  for (double& sample : seconds) sample = timed(plan.batch);
  return seconds;
}

}  // namespace tutti::bench
