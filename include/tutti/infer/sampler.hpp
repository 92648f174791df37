// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From logits to a token: biases, a chain of stages that weigh and drop tokens, a draw.

#include <tutti/core/error.hpp>
#include <tutti/infer/candidates.hpp>
#include <tutti/infer/penalties.hpp>
#include <tutti/infer/sampler_options.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// A token with its probability, for those who ask what else was likely.
struct TokenProbability {
  std::int32_t id;
  double probability;
};

/// A token that may come next, and what it was drawn from.
struct Proposal {
  std::int32_t token = -1;
  std::vector<TokenProbability> from{};  ///< rising by id; none: the token was not drawn, it is certain
};

/// The `count` most likely tokens of the softmax of `logits`, before any bias or stage.
inline std::vector<TokenProbability> most_likely(std::span<float const> logits, std::size_t count) {
  Candidates all;
  all.assign(logits);
  std::vector<TokenProbability> result;
  if (all.empty()) return result;
  double const most = all.highest(), mass = all.mass();
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i)
    result.push_back({all.at(i).id, std::exp(double(all.at(i).logit) - most) / mass});
  return result;
}

/// Draws are a function of the options, the tokens observed and the number of draws before: the same seed gives the
/// same text, on any number of threads.
class Sampler {
 public:
  /// `breakers` end repeated runs for DRY. Errors: configuration, naming the option and its range.
  explicit Sampler(SamplerOptions options, SequenceBreakers breakers = {})
      : options_((validate(options), std::move(options))),
        dry_{options_.dry_multiplier, options_.dry_base, options_.dry_allowed_length, std::move(breakers)},
        state_(options_.seed),
        mu_(2 * options_.mirostat_tau) {}

  SamplerOptions const& options() const noexcept { return options_; }

  /// Tokens that came before without being drawn: the prompt. Penalties look at them.
  void observe(std::span<std::int32_t const> tokens) { history_.insert(history_.end(), tokens.begin(), tokens.end()); }
  void observe(std::int32_t token) { history_.push_back(token); }
  /// Observes this in the place of all that it knew. The next draw is another one than the last, not the first again.
  void observe_instead(std::span<std::int32_t const> tokens) { history_.assign(tokens.begin(), tokens.end()); }
  /// Forgets what was observed and drawn, and begins anew with the seed.
  void reset() {
    history_.clear();
    state_ = options_.seed;
    mu_ = 2 * options_.mirostat_tau;
  }

  /// Draws a token and observes it. Errors: invalid_argument, when there are no logits or none is finite.
  std::int32_t operator()(std::span<float const> logits) {
    return (*this)(logits, [](Candidates&) {});
  }
  /// `restrict` sees the candidates after biases, by id, and may drop tokens (keep_if): a grammar does.
  /// Returns the proposed token as often as may be without changing how often each token is drawn: with probability
  /// min(1, p/q) of its probabilities here and there, else a token from what p has more than q. A certain proposal
  /// takes nothing of that: drawn is what would be drawn without it, and the two are compared.
  /// Source: Leviathan and others, "Fast Inference from Transformers via Speculative Decoding", 2023, algorithm 1.
  template <class Restrict>
  std::int32_t operator()(std::span<float const> logits, Restrict&& restrict, Proposal const* proposal = nullptr) {
    std::int32_t const token = draw(logits, restrict, proposal);
    observe(token);
    return token;
  }
  /// Draws and observes a token, and says what from: what a draft model proposes to a sampler of another seed.
  Proposal propose(std::span<float const> logits) {
    Proposal proposal{(*this)(logits), {}};
    if (options_.temperature == 0) {
      proposal.from = {{proposal.token, 1.0}};
      return proposal;
    }
    double const most = candidates_.highest(), mass = candidates_.mass();
    for (Candidate const& candidate : candidates_.list())
      proposal.from.push_back({candidate.id, std::exp(double(candidate.logit) - most) / mass});
    std::sort(proposal.from.begin(), proposal.from.end(),
              [](TokenProbability const& a, TokenProbability const& b) { return a.id < b.id; });
    return proposal;
  }

 private:
  template <class Restrict>
  std::int32_t draw(std::span<float const> logits, Restrict&& restrict, Proposal const* proposal) {
    candidates_.assign(logits);
    if (candidates_.empty())
      throw Error(ErrorKind::invalid_argument, "Sampler",
                  "none of the " + std::to_string(logits.size()) + " logits is finite");
    for (auto const& [id, bias] : options_.logit_bias)
      if (bias == -INFINITY) candidates_.keep_if([banned = id](std::int32_t other) { return other != banned; });
      else if (Candidate* const found = candidates_.find(id)) found->logit += bias;
    restrict(candidates_);
    if (candidates_.empty())
      throw Error(ErrorKind::invalid_argument, "Sampler", "biases or restrictions leave no token. Allow one");
    if (options_.mirostat != Mirostat::off && options_.temperature > 0) return draw_mirostat(proposal);
    for (SamplerStage const stage : options_.stages) apply(stage);
    return options_.temperature == 0 ? candidates_.at(0).id : pick(proposal);
  }

  std::span<std::int32_t const> latest(std::int64_t count) const noexcept {
    std::size_t const all = history_.size();
    return std::span(history_).last(count < 0 ? all : std::min(all, static_cast<std::size_t>(count)));
  }

  void apply(SamplerStage stage) {
    SamplerOptions const& o = options_;
    auto const least = static_cast<std::size_t>(o.min_keep);
    switch (stage) {
      case SamplerStage::penalties:
        return Penalties{o.repeat_penalty, o.frequency_penalty, o.presence_penalty}(candidates_,
                                                                                    latest(o.repeat_last_n));
      case SamplerStage::dry: return dry_(candidates_, latest(o.dry_penalty_last_n));
      case SamplerStage::top_n_sigma: return candidates_.top_n_sigma(o.top_n_sigma);
      case SamplerStage::top_k:
        if (o.top_k > 0) candidates_.keep(static_cast<std::size_t>(o.top_k));
        return;
      case SamplerStage::typical_p: return candidates_.typical(o.typical_p, least);
      case SamplerStage::top_p: return candidates_.top_p(o.top_p, least);
      case SamplerStage::min_p: return candidates_.min_p(o.min_p, least);
      case SamplerStage::xtc:
        if (o.xtc_probability > 0 && o.xtc_threshold <= 0.5 && uniform() < o.xtc_probability)
          candidates_.exclude_top(o.xtc_threshold, least);
        return;
      case SamplerStage::temperature: return cool();
    }
  }

  /// Divides by the temperature, which moves with the entropy where that is asked for.
  /// Source: "dynamic temperature", kalomaze, 2023.
  void cool() {
    double temperature = options_.temperature;
    if (temperature == 0) return;
    if (options_.dynatemp_range > 0 && candidates_.size() > 1) {
      double const low = std::max(0.0, temperature - options_.dynatemp_range),
                   high = temperature + options_.dynatemp_range,
                   share = candidates_.entropy() / std::log(static_cast<double>(candidates_.size()));
      temperature = low + (high - low) * std::pow(std::clamp(share, 0.0, 1.0), options_.dynatemp_exponent);
    }
    if (temperature <= 1e-6) return candidates_.keep(1);
    // The most likely token's logit becomes zero, so that none overflows.
    double const most = candidates_.highest();
    candidates_.transform([&](float logit) { return static_cast<float>((double(logit) - most) / temperature); });
  }

  std::int32_t pick(Proposal const* proposal) {
    candidates_.settle();
    double const most = candidates_.highest(), mass = candidates_.mass();
    auto const weight = [&](Candidate const& candidate) { return std::exp(double(candidate.logit) - most); };
    if (proposal == nullptr || proposal->from.empty()) return pick(mass, weight);
    std::vector<TokenProbability> const& from = proposal->from;
    auto const proposed = [&](std::int32_t id) {  // in the scale of the weights
      auto const found = std::lower_bound(from.begin(), from.end(), id,
                                          [](TokenProbability const& p, std::int32_t wanted) { return p.id < wanted; });
      return found == from.end() || found->id != id ? 0.0 : found->probability * mass;
    };
    Candidate const* const found = candidates_.find(proposal->token);
    if (uniform() * proposed(proposal->token) < (found == nullptr ? 0.0 : weight(*found))) return proposal->token;
    auto const more = [&](Candidate const& candidate) {
      return std::max(weight(candidate) - proposed(candidate.id), 0.0);
    };
    double sum = 0;
    for (Candidate const& candidate : candidates_.list()) sum += more(candidate);
    return sum > 0 ? pick(sum, more) : pick(mass, weight);  // no more: the two differ by rounding alone
  }
  /// Inverse of the cumulated weights, which are `sum` together, in the candidates' order.
  template <class Weight>
  std::int32_t pick(double sum, Weight const& weight) {
    std::span<Candidate const> const list = candidates_.list();
    double coin = uniform() * sum;
    for (Candidate const& candidate : list.first(list.size() - 1)) {
      coin -= weight(candidate);
      if (coin < 0) return candidate.id;
    }
    return list.back().id;
  }

  /// Source: Basu and others, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", 2021.
  std::int32_t draw_mirostat(Proposal const* proposal) {
    cool();
    double const most = candidates_.highest(), mass = candidates_.mass();
    auto const surprise = [&](Candidate const& c) {
      return -((double(c.logit) - most) - std::log(mass)) / std::log(2.0);
    };
    auto const vocabulary = static_cast<double>(candidates_.size());
    if (options_.mirostat == Mirostat::two) {
      std::size_t count = 0;
      while (count < candidates_.size() && surprise(candidates_.at(count)) <= mu_) ++count;
      candidates_.keep(count);
    } else if (candidates_.size() > 1) {
      // The exponent of Zipf's law that the most likely tokens follow, and the k at which it gives this surprise.
      double weighted = 0, squares = 0;
      std::size_t const head = std::min<std::size_t>(100, candidates_.size());
      for (std::size_t i = 0; i + 1 < head; ++i) {
        double const t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1)),
                     b = double(candidates_.at(i).logit) - double(candidates_.at(i + 1).logit);
        weighted += t * b, squares += t * t;
      }
      double const s = weighted / squares, epsilon = s - 1;
      double const k = std::abs(epsilon) < 1e-9 || s <= 0
                           ? vocabulary
                           : std::pow(epsilon * std::pow(2, mu_) / (1 - std::pow(vocabulary, -epsilon)), 1 / s);
      candidates_.keep(std::isfinite(k) ? static_cast<std::size_t>(std::clamp(k, 1.0, vocabulary))
                                        : candidates_.size());
    }
    double const kept = candidates_.mass();
    std::int32_t const token = pick(proposal);
    for (Candidate const& candidate : candidates_.list())
      if (candidate.id == token) {
        double const seen = -((double(candidate.logit) - most) - std::log(kept)) / std::log(2.0);
        mu_ -= options_.mirostat_eta * (seen - options_.mirostat_tau);
      }
    return token;
  }

  /// SplitMix64 (Steele, Lea, Flood 2014), upper 53 bits: [0, 1).
  double uniform() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return double((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
  }

  SamplerOptions options_;
  Dry dry_;
  std::uint64_t state_;
  double mu_;  // the surprise that mirostat allows
  Candidates candidates_;
  std::vector<std::int32_t> history_;
};

}  // namespace tutti::infer
