// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Training batches from several sets of token files, each with its share of the samples.

#include <tutti/core/checked.hpp>
#include <tutti/core/error.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/data/permutation.hpp>
#include <tutti/tensor/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::data {

/// Whole numbers n_k, at least 1 each, whose sum N is the smallest up to 1000 for which all n_k / N are in proportion
/// to the weights; where there is none, the nearest ones of a thousandth.
/// Errors: invalid_argument, for a weight that is not positive and finite, or below a two-thousandth of all.
inline std::vector<std::int64_t> mixture_parts(std::vector<double> const& weights) {
  auto const refuse = [](std::string const& what) {
    throw Error(ErrorKind::invalid_argument, "mixture_parts", what + ". Give each set a positive weight");
  };
  if (weights.empty()) refuse("a mixture of no sets is impossible");
  for (double const weight : weights)
    if (!(weight > 0) || !std::isfinite(weight)) refuse("a weight of " + std::to_string(weight) + " is impossible");
  double const all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> parts(weights.size());
  std::int64_t const most = 1000;
  for (std::int64_t total = 1; total <= most; ++total) {
    double worst = 0;
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      double const exact = weights[k] / all * static_cast<double>(total);
      parts[k] = std::llround(exact);
      sum += parts[k];
      worst = std::max(worst, parts[k] < 1 ? 1.0 : std::abs(exact - static_cast<double>(parts[k])));
    }
    if (worst < 1e-6 && sum == total) return parts;
  }
  // Largest remainders.
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t left = most;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    double const exact = weights[k] / all * static_cast<double>(most);
    if (exact < 0.5)
      refuse("a weight of " + std::to_string(weights[k]) + " among " + std::to_string(all) +
             " is less than one sample in 2000");
    parts[k] = std::max<std::int64_t>(1, static_cast<std::int64_t>(exact));
    left -= parts[k];
    remainders.emplace_back(static_cast<double>(parts[k]) - exact, k);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::size_t i = 0; left > 0; ++i, --left) ++parts[remainders[i % remainders.size()].second];
  return parts;
}

/// One set of a mixture.
struct MixtureSet {
  std::string name;   ///< for people
  TokenCorpus corpus;
  double weight = 1;  ///< of its samples among those of all sets
};

/// Sample number g = step * batch + index of a mixture of parts n_k, N in all, is of the set in whose part number
/// q = Permutation(seed, g / N, N)(g % N) falls: every N samples on end have exactly n_k of set k. It is that set's
/// sample number (g / N) * n_k + (q - n_0 - ... - n_(k-1)), as TrainLoader numbers them: each set has epochs of its
/// own. A single set gives what TrainLoader gives.
/// Determinism  a function of seed, step and index alone: not of ranks or micro-steps, nor of where a run was resumed
class MixtureLoader {
 public:
  /// `batch` is the global batch; `mark` as of TrainLoader. Errors: those of mixture_parts and TrainLoader.
  MixtureLoader(std::vector<MixtureSet> sets, std::int64_t batch, std::int64_t sequence, std::uint64_t seed,
                std::optional<std::int32_t> mark = {})
      : batch_(batch), seed_(seed) {
    std::vector<double> weights;
    for (MixtureSet const& set : sets) weights.push_back(set.weight);
    parts_ = mixture_parts(weights);
    for (MixtureSet& set : sets) {
      // Sets have orders of their own; the first that of a loader alone.
      std::uint64_t const own = seed + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(loaders_.size());
      loaders_.emplace_back(std::move(set.corpus), batch, sequence, own, mark);
      names_.push_back(std::move(set.name));
    }
    all_parts_ = std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0});
  }
  /// Of one set.
  MixtureLoader(TokenCorpus corpus, std::int64_t batch, std::int64_t sequence, std::uint64_t seed)
      : parts_{1}, all_parts_(1), batch_(batch), seed_(seed) {
    names_.push_back(corpus.pattern());
    loaders_.emplace_back(std::move(corpus), batch, sequence, seed);
  }

  std::size_t sets() const noexcept { return loaders_.size(); }
  std::string const& name(std::size_t set) const noexcept { return names_[set]; }
  TrainLoader const& loader(std::size_t set) const noexcept { return loaders_[set]; }
  /// Of the first set.
  TokenCorpus const& corpus() const noexcept { return loaders_[0].corpus(); }
  /// Of samples that are of a set, as it is kept.
  double share(std::size_t set) const noexcept {
    return static_cast<double>(parts_[set]) / static_cast<double>(all_parts_);
  }
  std::int64_t tokens() const noexcept {
    std::int64_t all = 0;
    for (TrainLoader const& one : loaders_) all += one.corpus().tokens();
    return all;
  }
  /// Windows of all sets.
  std::int64_t windows() const noexcept {
    std::int64_t all = 0;
    for (TrainLoader const& one : loaders_) all += one.windows();
    return all;
  }
  bool leaves_out_targets() const noexcept {
    return std::any_of(loaders_.begin(), loaders_.end(), [](auto const& one) { return one.leaves_out_targets(); });
  }
  /// Passes over a set in so many steps.
  double epochs_at(std::int64_t step, std::size_t set) const noexcept {
    return loaders_[set].epochs_at(step) * share(set);
  }
  /// Passes over the set that is read most often.
  double epochs_at(std::int64_t step) const noexcept {
    double most = 0;
    for (std::size_t set = 0; set < sets(); ++set) most = std::max(most, epochs_at(step, set));
    return most;
  }

  /// Of which set a sample is, and which of that set's.
  struct Choice {
    std::size_t set = 0;
    std::int64_t sample = 0;

    friend bool operator==(Choice const&, Choice const&) = default;
  };
  Choice choice(std::int64_t sample) const noexcept {
    std::int64_t const block = sample / all_parts_;
    std::int64_t place = Permutation(seed_ ^ 0x4d49585455524520u, static_cast<std::uint64_t>(block),
                                     all_parts_)(sample % all_parts_);
    std::size_t set = 0;
    while (place >= parts_[set]) place -= parts_[set++];
    return {set, block * parts_[set] + place};
  }

  /// As TrainLoader::fill.
  void fill(std::int64_t step, std::int64_t first, TensorView<std::int32_t> tokens,
            TensorView<std::int32_t> targets) const {
    loaders_[0].require_rows("MixtureLoader::fill", step, first, tokens, targets);
    std::int64_t const sequence = loaders_[0].sequence();
    for (std::int64_t row = 0; row < tokens.shape()[0]; ++row) {
      Choice const chosen = choice(checked_add(checked_multiply(step, batch_), first + row));
      loaders_[chosen.set].fill_sample(chosen.sample, tokens.data() + row * sequence, targets.data() + row * sequence);
    }
  }

 private:
  std::vector<TrainLoader> loaders_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> parts_;
  std::int64_t all_parts_ = 1, batch_;
  std::uint64_t seed_;
};

}  // namespace tutti::data
