// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The tokens that may come next, and what makes them fewer: the truncation samplers. Of equal logits the lower id
/// comes first everywhere, so that no result depends on how a sort treats equals.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::infer {

/// A token with its logit, as biases and penalties left it.
struct Candidate {
  std::int32_t id;
  float logit;

  friend bool operator==(Candidate const&, Candidate const&) = default;
};

/// Most likely first.
struct MoreLikely {
  bool operator()(Candidate const& a, Candidate const& b) const noexcept {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
};

/// The tokens left, at least one once `assign` found one. Their order is by id until something needs them by
/// likelihood; then the most likely ones are sorted in front, as many as are looked at.
class Candidates {
 public:
  /// The tokens whose logits are finite: infinities and NaN are never drawn.
  void assign(std::span<float const> logits) {
    list_.clear();
    for (std::size_t id = 0; id < logits.size(); ++id)
      if (std::isfinite(logits[id])) list_.push_back({static_cast<std::int32_t>(id), logits[id]});
    sorted_ = 0, by_id_ = true;
  }

  std::size_t size() const noexcept { return list_.size(); }
  bool empty() const noexcept { return list_.empty(); }
  std::span<Candidate const> list() const noexcept { return list_; }

  /// The candidate of a token, or none; its logit may be changed. Cost: logarithmic while the order is by id.
  Candidate* find(std::int32_t id) noexcept {
    auto const found = by_id_
                           ? std::lower_bound(list_.begin(), list_.end(), id,
                                              [](Candidate const& c, std::int32_t wanted) { return c.id < wanted; })
                           : std::find_if(list_.begin(), list_.end(), [&](Candidate const& c) { return c.id == id; });
    if (found == list_.end() || found->id != id) return nullptr;
    sorted_ = 0;
    return &*found;
  }
  /// Keeps the tokens of which accepts(id) is true.
  template <class Accepts>
  void keep_if(Accepts&& accepts) {
    std::erase_if(list_, [&](Candidate const& candidate) { return !accepts(candidate.id); });
    sorted_ = 0;
  }

  /// Number `rank` among the most likely.
  Candidate const& at(std::size_t rank) {
    sort(rank + 1);
    return list_[rank];
  }
  /// Keeps the `count` most likely, one at least.
  void keep(std::size_t count) {
    count = std::max<std::size_t>(count, 1);
    if (count >= list_.size()) return;
    sort(count);
    list_.resize(count);
  }
  /// Gives the candidates an order that is a function of what they are: by likelihood, or by id if nothing was sorted.
  void settle() {
    if (!by_id_) sort(list_.size());
  }
  /// f(logit) for every candidate; f must not decrease, so that the order stays.
  template <class F>
  void transform(F&& f) {
    for (Candidate& candidate : list_) candidate.logit = f(candidate.logit);
  }

  float highest() const noexcept {
    float most = -INFINITY;
    for (Candidate const& candidate : list_) most = std::max(most, candidate.logit);
    return most;
  }
  /// Of exp(logit - highest), over all.
  double mass() const noexcept {
    double const most = highest();
    double sum = 0;
    for (Candidate const& candidate : list_) sum += std::exp(double(candidate.logit) - most);
    return sum;
  }
  /// Of the softmax, in nats.
  double entropy() const noexcept {
    double const most = highest();
    double sum = 0, weighted = 0;
    for (Candidate const& candidate : list_) {
      double const x = double(candidate.logit) - most, weight = std::exp(x);
      sum += weight, weighted += weight * x;
    }
    return std::log(sum) - weighted / sum;
  }

  /// Keeps the smallest set of the most likely whose probability reaches `p`, `least` at least.
  /// Source: Holtzman and others, "The Curious Case of Neural Text Degeneration", 2020.
  void top_p(double p, std::size_t least) {
    if (p >= 1) return;
    double const most = highest(), wanted = p * mass();
    double kept = 0;
    std::size_t count = 0;
    while (count < size() && (kept < wanted || count < least)) kept += std::exp(double(at(count++).logit) - most);
    keep(count);
  }

  /// Keeps those at least `ratio` times as likely as the most likely, `least` at least.
  /// Source: Nguyen and others, "Min-p Sampling for Creative and Coherent LLM Outputs", 2024.
  void min_p(double ratio, std::size_t least) {
    if (ratio <= 0) return;
    keep_above(double(highest()) + std::log(ratio), least);
  }

  /// Keeps logits within `n` standard deviations of the highest.
  /// Source: Tang and others, "Top-n sigma: Not All Logits Are You Need", 2024.
  void top_n_sigma(double n) {
    if (n <= 0) return;
    double sum = 0, squares = 0;
    for (Candidate const& candidate : list_) sum += candidate.logit;
    double const mean = sum / static_cast<double>(size());
    for (Candidate const& candidate : list_) squares += (candidate.logit - mean) * (candidate.logit - mean);
    keep_above(double(highest()) - n * std::sqrt(squares / static_cast<double>(size())), 1);
  }

  /// Keeps the tokens whose surprise is nearest the entropy until their probability exceeds `p`, `least` at least.
  /// Source: Meister and others, "Locally Typical Sampling", 2023.
  void typical(double p, std::size_t least) {
    if (p >= 1) return;
    double const most = highest(), all = mass(), expected = entropy();
    struct Distance {
      double distance, probability;
      Candidate candidate;
    };
    std::vector<Distance> distances;
    for (Candidate const& candidate : list_) {
      double const log_p = double(candidate.logit) - most - std::log(all);
      distances.push_back({std::abs(-log_p - expected), std::exp(log_p), candidate});
    }
    std::sort(distances.begin(), distances.end(), [](Distance const& a, Distance const& b) {
      return a.distance != b.distance ? a.distance < b.distance : MoreLikely()(a.candidate, b.candidate);
    });
    double kept = 0;
    std::size_t count = 0;
    while (count < distances.size() && (kept <= p || count < least)) kept += distances[count++].probability;
    list_.clear();
    for (std::size_t i = 0; i < count; ++i) list_.push_back(distances[i].candidate);
    std::sort(list_.begin(), list_.end(), MoreLikely());
    sorted_ = list_.size(), by_id_ = false;
  }

  /// Drops every token at least as likely as `threshold` but the least likely of them, where there are two or more;
  /// nothing where fewer than `least` would stay. Source: "exclude top choices", p-e-w, 2024.
  void exclude_top(double threshold, std::size_t least) {
    double const most = highest(), all = mass();
    std::size_t above = 0;
    while (above < size() && std::exp(double(at(above).logit) - most) >= threshold * all) ++above;
    if (above < 2 || size() - (above - 1) < std::max<std::size_t>(least, 1)) return;
    list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(above - 1));
    sorted_ -= above - 1;
  }

  /// Sorts at least the `count` most likely in front.
  void sort(std::size_t count) {
    count = std::min(count, list_.size());
    if (count <= sorted_) return;
    by_id_ = false;
    // By doubling: a filter that walks on sorts what it sees, not the vocabulary.
    count = std::min(list_.size(), std::max({count, 2 * sorted_, std::size_t{64}}));
    auto const begin = list_.begin() + static_cast<std::ptrdiff_t>(sorted_),
               end = list_.begin() + static_cast<std::ptrdiff_t>(count);
    if (count < list_.size()) std::nth_element(begin, end, list_.end(), MoreLikely());
    std::sort(begin, end, MoreLikely());
    sorted_ = count;
  }

 private:
  void keep_above(double logit, std::size_t least) {
    std::size_t count = 0;
    while (count < size() && (double(at(count).logit) >= logit || count < least)) ++count;
    keep(count);
  }

  std::vector<Candidate> list_;
  std::size_t sorted_ = 0;  // so many in front are the most likely, in order
  bool by_id_ = true;
};

}  // namespace tutti::infer
