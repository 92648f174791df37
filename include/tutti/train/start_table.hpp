// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a run says of itself before its first step.

#include <tutti/train/console.hpp>
#include <tutti/train/setup.hpp>
#include <tutti/train/train_step.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// What the setup does not say: where a run runs, and how.
struct RunFacts {
  std::string device, optimizer, products, algorithm, traffic;
  int ranks = 1;
  int tensor = 1;  ///< of the ranks, so many have one model together
  std::int64_t activation_bytes = 0;  ///< of work_bytes: what a stage of a pipeline keeps for backward passes
  int ranks_on_node = 1, threads = 1;
  std::int64_t parameters = 0;
  double flops_per_token = 0;
  double peak_flops = 0;         ///< measured, of all ranks
  std::int64_t state_bytes = 0;  ///< parameters and moments
  std::int64_t own_bytes = 0;    ///< those that each rank has for itself where others are shared
  std::int64_t work_bytes = 0;   ///< activations and gradients of a rank
  bool one_state = false;        ///< the ranks of a node share parameters and moments
};

/// "8, 4"
inline std::string describe_shares(Setup const& setup, int ranks) {
  std::string text;
  for (int rank = 0; rank < ranks; ++rank)
    text += (rank == 0 ? "" : ", ") + std::to_string(setup.share(rank).count);
  return text;
}

/// A set of the training data: its size, and in a mixture its share and the passes over it.
inline std::string describe_set(data::MixtureLoader const& train, std::size_t set, std::int64_t steps) {
  data::TokenCorpus const& corpus = train.loader(set).corpus();
  std::string text = fmt::format("{}: {} tokens", train.name(set), with_commas(corpus.tokens()));
  if (corpus.masked()) text += fmt::format(", of which {} are targets", with_commas(corpus.targets()));
  if (data::DocumentPacking const* const packing = train.loader(set).packing())
    text += fmt::format(", {} documents ({} cut) in {} sequences, {:.1f} % filled", with_commas(packing->documents()),
                        with_commas(packing->cut()), with_commas(packing->rows()), 100 * packing->filled());
  if (train.sets() > 1)
    text += fmt::format(", {:.3g} % of the samples, {:.2f} passes", 100 * train.share(set),
                        train.epochs_at(steps, set));
  return text;
}
inline std::int64_t tokens_held_out(Setup const& setup) {
  std::int64_t tokens = setup.validation ? setup.validation->corpus().tokens() : 0;
  for (data::ValidationLoader const& further : setup.further_validation) tokens += further.corpus().tokens();
  return tokens;
}

/// Rows of a name and a text.
inline std::vector<std::pair<std::string, std::string>> start_table(Setup const& setup, RunFacts const& facts) {
  Options const& o = setup.options;
  auto const bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(n)); };
  double const flops = facts.flops_per_token * static_cast<double>(setup.tokens_per_step());
  int const stages = setup.mesh.pipeline, data = facts.ranks / facts.tensor / stages;
  char const* const share = facts.tensor * stages == 1 ? "rank" : "group";
  auto const count = [](auto n, char const* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  std::vector<std::pair<std::string, std::string>> rows{
      {"device", fmt::format("{}, {:.0f} GFLOP/s {} measured", facts.device, facts.peak_flops / 1e9, o.compute.text())},
      {"layout",
       fmt::format("{}: {}{} x {}", o.backend.text(), count(facts.ranks, "rank"),
                   facts.tensor * stages == 1
                       ? ""
                       : fmt::format(" (data {}{}{})", data,
                                     facts.tensor > 1 ? fmt::format(" x tensor {}", facts.tensor) : "",
                                     stages > 1 ? fmt::format(" x pipeline {}", stages) : ""),
                   count(facts.threads, "thread"))},
      {"algorithm", facts.ranks == 1 && o.algorithm == AlgorithmName::ddp ? "one rank" : facts.algorithm},
      {"model", setup.model.origin + ": " + setup.model.sizes},
      {"parameters", fmt::format("{}, fp32", with_commas(facts.parameters))},
      {"products", facts.products},
      {"data", describe_set(*setup.train, 0, setup.steps)},
      {"held out", setup.validation ? fmt::format("{}: {} tokens", o.validation_data,
                                                  with_commas(tokens_held_out(setup)))
                                    : "nothing"},
      {"step", fmt::format("{} tokens = {} x sequence {} x {}; {:.1f} GFLOP", with_commas(setup.tokens_per_step()),
                           !setup.shares.empty()
                               ? fmt::format("{} shared by {}: {}", count(setup.micro_rows, "sequence"),
                                             count(data, share), describe_shares(setup, data))
                           : setup.micro_rows % data == 0
                               ? fmt::format("batch {} x {}", setup.rows, count(data, share))
                               : fmt::format("{} shared by {}, {} or {} each", count(setup.micro_rows, "sequence"),
                                             count(data, share), setup.rows, setup.rows - 1),
                           o.sequence, count(setup.micro_steps, "micro-step"), flops / 1e9)},
      {"steps", fmt::format("{} to {}, {:.2f} passes over {}", setup.first_step + 1, setup.steps,
                            setup.train->epochs_at(setup.steps),
                            setup.train->sets() == 1 ? "the data" : "the set that is read most often")},
      {"optimizer", fmt::format("{}{}; {} schedule with peak {:.3g} after {} steps of warm-up, clip {}",
                                facts.optimizer, o.groups.empty() ? "" : "; groups " + o.groups,
                                o.schedule.text(), o.learning_rate, o.warmup,
                                o.clip == 0 ? std::string("none") : fmt::format("{}", o.clip))},
      {"dropout", o.dropout == 0 && o.attention_dropout == 0
                      ? "none"
                      : fmt::format("{} of embeddings and residuals, {} of attention", o.dropout, o.attention_dropout)},
      {"recompute", describe_recompute(o.recompute)},
      {"memory",
       facts.one_state
           ? fmt::format("{} activations and gradients{} a rank; {} parameters and moments, of which the node's {} "
                         "share one copy and its updates",
                         bytes(facts.work_bytes),
                         facts.own_bytes > 0 ? fmt::format(", {} parameters and moments", bytes(facts.own_bytes)) : "",
                         bytes(facts.state_bytes), count(facts.ranks_on_node, "rank"))
           : fmt::format("{} a rank: {} parameters and moments, {} activations and gradients{}",
                         bytes(facts.state_bytes + facts.work_bytes), bytes(facts.state_bytes),
                         bytes(facts.work_bytes),
                         stages == 1 ? ""
                                     : fmt::format(", of which the first stage keeps {} for backward passes to come",
                                                   bytes(facts.activation_bytes)))},
      {"traffic", facts.traffic},
      {"seed", std::to_string(o.seed)},
      {"out", o.out.empty() ? "nothing is kept (give --out)" : o.out}};
  auto const behind = std::find_if(rows.begin(), rows.end(), [](auto const& row) { return row.first == "held out"; });
  std::vector<std::pair<std::string, std::string>> sets;
  for (std::size_t set = 1; set < setup.train->sets(); ++set)
    sets.emplace_back("data " + std::to_string(set + 1), describe_set(*setup.train, set, setup.steps));
  rows.insert(behind, sets.begin(), sets.end());
  return rows;
}

}  // namespace tutti::train
