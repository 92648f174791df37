// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a step's sequences are divided among micro-steps and ranks.

#include <tutti/core/concat.hpp>
#include <tutti/train/setup_values.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train::detail {

/// Micro-steps of the run that is resumed, or 0 when another batch or number of ranks is asked for: the layout of a
/// checkpoint stays where it can, so that a resumed run gives the same bits.
inline std::int64_t micro_steps_of_checkpoint(Setup const& s, int ranks) {
  Options const& o = s.options;
  if (!s.resume || o.typed.contains("sync-freq")) return 0;
  nlohmann::json const& facts = s.resume->facts();
  nlohmann::json const& settings = facts.at("settings");
  bool const same = facts.value("ranks", 0) == ranks && settings.value("batch", std::int64_t{0}) == o.batch &&
                    settings.value("sequence", std::int64_t{0}) == o.sequence &&
                    settings.value("total-tokens", std::int64_t{0}) == o.total_tokens;
  std::int64_t const saved = facts.value("micro_steps", std::int64_t{0});
  return same && saved > 0 && s.global_rows % saved == 0 && s.global_rows / saved >= ranks ? saved : 0;
}

/// Divides the batch: total = sequence * micro_rows * micro_steps, where ranks have equal shares of the rows of a
/// micro-step or, if those are not a multiple of the ranks, shares that differ by one. What can be even is.
inline void divide_batch(Setup& s, int ranks) {
  Options& o = s.options;
  auto const divide = [&](std::int64_t micro_steps) {
    s.micro_steps = micro_steps;
    s.micro_rows = s.global_rows / micro_steps;
    s.rows = data::share_of(s.micro_rows, 0, ranks).count;
  };
  if (o.total_tokens == 0) {
    std::int64_t const micro_steps = std::max<std::int64_t>(o.sync_freq, 1);
    double const tokens = static_cast<double>(o.batch) * ranks * static_cast<double>(micro_steps) *
                          static_cast<double>(o.sequence);
    if (tokens > static_cast<double>(most_tokens))
      refuse("--batch " + std::to_string(o.batch) + " x --sequence " + std::to_string(o.sequence) + " x " +
             std::to_string(ranks) + " ranks x --sync-freq " + std::to_string(micro_steps) + " is more than " +
             std::to_string(most_tokens) + " tokens a step. Choose smaller ones");
    s.global_rows = o.batch * ranks * micro_steps;
    divide(micro_steps);
    o.total_tokens = s.global_rows * o.sequence;
    return;
  }
  auto const flag = [&](char const* name, std::int64_t value) {
    return "--" + std::string(name) + " " + std::to_string(value) + o.source_of(name);
  };
  std::string const total = flag("total-tokens", o.total_tokens);
  if (o.total_tokens % o.sequence != 0)
    refuse(total + " is not a multiple of " + flag("sequence", o.sequence) + ". Give a --total-tokens that is, as " +
           std::to_string((o.total_tokens + o.sequence - 1) / o.sequence * o.sequence));
  s.global_rows = o.total_tokens / o.sequence;
  auto const sequences = [](std::int64_t n) { return std::to_string(n) + (n == 1 ? " sequence" : " sequences"); };
  if (s.global_rows < ranks)
    refuse(total + " is " + sequences(s.global_rows) + " a step, fewer than the " + std::to_string(ranks) +
           " ranks. Choose fewer ranks or more tokens");
  bool const typed = o.typed.contains("batch");
  if (std::int64_t const kept = micro_steps_of_checkpoint(s, ranks); kept > 0) return divide(kept);
  if (std::int64_t const micro_steps = o.sync_freq; micro_steps > 0) {
    if (s.global_rows % micro_steps != 0)
      refuse(total + " is " + sequences(s.global_rows) + ", which " + flag("sync-freq", micro_steps) +
             " does not divide");
    divide(micro_steps);
    if (s.micro_rows < ranks)
      refuse(total + " with " + flag("sync-freq", micro_steps) + " is " + sequences(s.micro_rows) +
             " a micro-step, fewer than the " + std::to_string(ranks) + " ranks. Choose fewer of both");
    if (typed && s.rows != o.batch)
      refuse(total + " with " + flag("sync-freq", micro_steps) + " needs --batch " + std::to_string(s.rows) + ", not " +
             std::to_string(o.batch));
    return;
  }
  if (s.global_rows % ranks == 0) {
    std::int64_t const share = s.global_rows / ranks;
    std::int64_t rows = std::min(o.batch, share);
    if (share % rows != 0 && typed)
      refuse(total + " is " + sequences(share) + " per rank, which --batch " + std::to_string(o.batch) +
             " does not divide");
    while (share % rows != 0) --rows;
    divide(share / rows);
    return;
  }
  // The fewest micro-steps whose shares are at most a batch; where none are, the smallest shares there are.
  std::int64_t fewest = 0, most = 1;
  for (std::int64_t d = 1; d <= s.global_rows / d; ++d) {
    if (s.global_rows % d != 0) continue;
    for (std::int64_t const n : {d, s.global_rows / d}) {
      if (s.global_rows / n < ranks) continue;
      most = std::max(most, n);
      bool const fits = data::share_of(s.global_rows / n, 0, ranks).count <= o.batch;
      if (fits && (fewest == 0 || n < fewest)) fewest = n;
    }
  }
  divide(fewest > 0 ? fewest : most);
  if (typed && s.rows > o.batch)
    refuse(total + " is " + sequences(s.global_rows) + ", of which " + std::to_string(ranks) + " ranks do " +
           std::to_string(s.rows) + " at a time, not --batch " + std::to_string(o.batch) +
           ". Choose a batch of " + std::to_string(s.rows) + ", other ranks or tokens");
}

/// As --rank-shares says; what is to be measured is left, unless the run that is resumed has measured it, so that it
/// gives the same bits.
inline void share_batch(Setup& s) {
  RankShares const asked(s.options.rank_shares);
  bool const kept = s.resume && !s.options.typed.contains("rank-shares");
  std::vector<double> weights = asked.weights();
  if (kept && asked.measured()) weights = s.resume->facts().value("rank_shares", weights);
  if (weights.empty()) return;
  if (weights.size() == static_cast<std::size_t>(s.mesh.data)) return s.take_shares(std::move(weights));
  if (asked.measured()) return;  // of other ranks
  std::string const why = concat("--rank-shares ", s.options.rank_shares, " has ", weights.size(), " numbers, and ",
                                 s.mesh.data, s.mesh.data == 1 ? " rank does" : " ranks share out", " a batch");
  if (!kept) refuse(why);
  s.warnings.push_back(why + ": all get as many sequences");
}

/// Refuses flags with which --restart-ranks ranks could not go on with a run whose batch is divided.
inline void check_restart(Setup const& s) {
  Options const& o = s.options;
  if (o.restart_ranks == 0) return;
  Setup later;
  later.options = o;
  if (!o.typed.contains("rank-shares")) later.options.rank_shares = "even";
  try {
    later.mesh = parallel::mesh_sizes(o.restart_ranks, o.data_parallel, o.tensor_parallel, o.pipeline_parallel);
    divide_batch(later, later.mesh.data);
    share_batch(later);
  } catch (Error const& error) {
    refuse(concat("--restart-ranks ", o.restart_ranks, " could not go on with this run: ", error.message()));
  }
}

}  // namespace tutti::train::detail
