// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Contenders in turn on one case, and what their samples say.

#include "crew.hpp"
#include "options.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace tutti::bench {

struct Entry {
  Crew* crew;
  Contender contender;
  std::string label;
};

struct Figures {
  bool exists = false;
  std::int64_t wrong = 0;
  double median = 0, p99 = 0;  ///< seconds of the slowest rank
  bool timed() const { return median > 0; }
};

/// The smallest sample that is not below a share of all samples.
inline double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  auto const rank = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(samples.size()))) - 1;
  auto const at = samples.begin() + std::max<std::ptrdiff_t>(rank, 0);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

/// Every contender verified, then timed in `rounds` turns, each round begun by the next. Who is wrong is not timed.
inline std::vector<Figures> compete(Options const& o, Case const& what, std::vector<Entry> const& entries) {
  std::vector<Figures> figures(entries.size());
  std::vector<std::vector<double>> seconds(entries.size());
  std::vector<Plan> plans(entries.size(), Plan{o.samples, o.batch, o.warmup, 0, o.limit_seconds});
  auto const copies = [&](std::size_t i) {
    return entries[i].contender == Contender::copy || entries[i].contender == Contender::stream;
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    bool prepared = false;
    for (std::size_t j = 0; j < i; ++j) prepared = prepared || entries[j].crew == entries[i].crew;
    if (!prepared) entries[i].crew->run({Action::prepare, entries[i].contender, what, {}});
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    figures[i].exists = true;
    // Cold calls are the warm ones elsewhere.
    if (o.check == 0 || copies(i) || (what.cold && o.warm())) continue;
    Result const result = entries[i].crew->run({Action::verify, entries[i].contender, what, {}});
    figures[i].wrong = result.wrong;
  }
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t turn = 0; turn < entries.size(); ++turn) {
      std::size_t const i = (turn + static_cast<std::size_t>(round)) % entries.size();
      if (!figures[i].exists || figures[i].wrong != 0) continue;
      Result result = entries[i].crew->run({Action::measure, entries[i].contender, what, plans[i]});
      figures[i].exists = result.exists;
      plans[i] = result.plan;
      seconds[i].insert(seconds[i].end(), result.seconds.begin(), result.seconds.end());
    }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    figures[i].median = quantile(seconds[i], 0.5);
    figures[i].p99 = quantile(seconds[i], 0.99);
  }
  return figures;
}

/// Bytes a second that all ranks' copies of this case's message read and write together, by the faster kind of copy; 0
/// when none ran.
inline double copy_bandwidth(Case const& what, std::vector<Entry> const& entries, std::vector<Figures> const& figures) {
  double best = 0;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if ((entries[i].contender == Contender::copy || entries[i].contender == Contender::stream) && figures[i].timed())
      best = std::max(best, 2.0 * what.ranks * static_cast<double>(what.bytes()) / figures[i].median);
  return best;
}

}  // namespace tutti::bench
