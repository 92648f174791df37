// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What is decided before the first step of a run.

#include <tutti/core/error.hpp>
#include <tutti/data/mixture.hpp>
#include <tutti/optim/schedule.hpp>
#include <tutti/parallel/mesh.hpp>
#include <tutti/train/data_files.hpp>
#include <tutti/train/model_facts.hpp>
#include <tutti/train/options.hpp>
#include <tutti/train/rank_shares.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

/// Everything that is decided before the first step. The same on every rank.
struct Setup {
  Options options;
  ModelFacts model;
  std::optional<Checkpoint> resume;
  std::optional<RunTokenizer> tokenizer;
  std::optional<data::MixtureLoader> train;
  std::optional<data::ValidationLoader> validation;
  std::optional<std::int32_t> document_mark;  ///< with which documents begin that --pack keeps apart
  std::vector<data::ValidationLoader> further_validation;  ///< of the second set of --validation-data on
  std::int64_t rows = 1;               ///< sequences of the rank with most of them, in a micro-step
  std::vector<double> shares;          ///< by which ranks share them out; empty: evenly, or not measured yet
  std::int64_t micro_rows = 1;         ///< sequences per micro-step over all ranks
  std::int64_t micro_steps = 1;
  std::int64_t global_rows = 1;        ///< sequences per step
  parallel::MeshSizes mesh;            ///< of all ranks
  std::int64_t steps = 1;
  std::int64_t first_step = 0;         ///< steps done before this run
  optim::Schedule schedule;
  std::vector<std::string> changes;    ///< settings that differ from the resumed checkpoint's
  std::vector<std::string> warnings;   ///< what is possible and hardly meant
  bool same_run = false;               ///< the resumed checkpoint lies in --out: its history goes on

  /// Of a rank among those that share out a batch, of the sequences of a micro-step.
  data::Share share(int rank) const {
    return shares.empty() ? data::share_of(micro_rows, rank, mesh.data)
                          : weighted_share(micro_rows, static_cast<std::size_t>(rank), shares);
  }
  void take_shares(std::vector<double> weights) {
    shares = std::move(weights);
    for (int rank = 0; rank < mesh.data; ++rank) rows = std::max(rank == 0 ? 0 : rows, share(rank).count);
  }
  /// Of a step's tokens and targets on the rank with the largest share.
  double bytes_of_tokens() const noexcept {
    return 8.0 * static_cast<double>(rows) * static_cast<double>(micro_steps) * static_cast<double>(options.sequence);
  }
  std::int64_t tokens_per_step() const noexcept { return global_rows * options.sequence; }
  /// Windows of the held-out text that validation measures: so many steps' sequences, whoever does them.
  std::int64_t validation_windows() const noexcept { return validation ? validation_windows(*validation) : 0; }
  std::int64_t validation_windows(data::ValidationLoader const& held_out) const noexcept {
    std::int64_t const all = held_out.windows(), batches = options.validation_batches;
    return batches == 0 || batches > all / global_rows ? all : batches * global_rows;
  }
};

namespace detail {

[[noreturn]] inline void refuse(std::string const& what) { throw Error(ErrorKind::configuration, "train_model", what); }

}  // namespace detail
}  // namespace tutti::train
