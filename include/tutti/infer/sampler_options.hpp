// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What sampling can be told: one table of settings with their ranges, which programs, servers and checks read.

#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {
namespace infer {

/// A stage of the chain. Biases of logits come before all of them, the draw after.
enum class SamplerStage : unsigned char {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical_p,
  top_p,
  min_p,
  xtc,
  temperature,
};

enum class Mirostat : unsigned char { off, one, two };

}  // namespace infer

template <>
inline constexpr auto setting::spelling<infer::SamplerStage> = std::array<std::string_view, 9>{
    "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"};
template <>
inline constexpr auto setting::spelling<infer::Mirostat> = std::array<std::string_view, 3>{"0", "1", "2"};

namespace infer {

/// The defaults change nothing: tokens are drawn from the softmax of the logits.
struct SamplerOptions {
  double temperature = 1.0;   ///< divides the logits; 0: always the most likely token (the lowest id among equals)
  double dynatemp_range = 0;  ///< temperature moves this far to both sides with the entropy of what is left
  double dynatemp_exponent = 1;
  std::int64_t top_k = 0;  ///< 0 keeps all
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
  double top_n_sigma = -1;     ///< 0 or below: off
  double xtc_probability = 0;  ///< that the most likely are excluded this time
  double xtc_threshold = 0.1;  ///< above 0.5: off
  double repeat_penalty = 1;
  std::int64_t repeat_last_n = 64;  ///< tokens that penalties look back; -1: all
  double frequency_penalty = 0;
  double presence_penalty = 0;
  double dry_multiplier = 0;
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_penalty_last_n = -1;
  setting::Choice<Mirostat> mirostat = Mirostat::off;  ///< in place of every stage but the temperature
  double mirostat_tau = 5;                             ///< wanted surprise, in bits
  double mirostat_eta = 0.1;                           ///< how fast it is approached
  std::int64_t min_keep = 0;                           ///< tokens that top-p, min-p, typical-p and XTC leave at least
  std::uint64_t seed = 1337;

  /// Added to logits of tokens; -infinity bans one.
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};
  std::vector<SamplerStage> stages = {SamplerStage::penalties, SamplerStage::dry,       SamplerStage::top_n_sigma,
                                      SamplerStage::top_k,     SamplerStage::typical_p, SamplerStage::top_p,
                                      SamplerStage::min_p,     SamplerStage::xtc,       SamplerStage::temperature};
};

/// What `./tutti generate` and the WASI-NN library draw with where nothing is said.
inline SamplerOptions usual_sampling() { return {.temperature = 0.8, .top_p = 0.95}; }
/// What ends a repeated run for DRY where nothing is said.
inline std::vector<std::string> usual_breakers() { return {"\n", ":", "\"", "*"}; }

/// Calls f(name, value, what it may be, help) for every setting but biases and stages.
template <class AnyOptions, class F>
void for_each_sampler_setting(AnyOptions& o, F&& f) {
  using Real = setting::Range<double>;
  using Whole = setting::Range<std::int64_t>;
  constexpr double most = 1e6;  // finite, and so are quotients and products with it
  f("temperature", o.temperature, Real{0, most}, "divides the logits; 0 takes the most likely token");
  f("dynatemp_range", o.dynatemp_range, Real{0, most}, "the temperature moves this far with the entropy");
  f("dynatemp_exponent", o.dynatemp_exponent, Real{0, most}, "of the entropy's share");
  f("top_k", o.top_k, Whole{0}, "draw from the k most likely; 0: from all");
  f("top_p", o.top_p, Real{0, 1}, "draw from the most likely that together have this mass");
  f("min_p", o.min_p, Real{0, 1}, "draw from tokens at least this many times as likely as the most likely");
  f("typical_p", o.typical_p, Real{0, 1}, "draw from tokens of expected surprise that together have this mass");
  f("top_n_sigma", o.top_n_sigma, Real{-1, most}, "draw from logits within n deviations of the highest; -1: off");
  f("xtc_probability", o.xtc_probability, Real{0, 1}, "how often the most likely tokens are excluded");
  f("xtc_threshold", o.xtc_threshold, Real{0, 1}, "how likely they are at least; above 0.5: off");
  f("repeat_penalty", o.repeat_penalty, Real{1e-3, most}, "makes tokens seen less likely; 1: off");
  f("repeat_last_n", o.repeat_last_n, Whole{-1}, "tokens that penalties look back; -1: all");
  f("frequency_penalty", o.frequency_penalty, Real{-2, 2}, "for each time that a token was seen");
  f("presence_penalty", o.presence_penalty, Real{-2, 2}, "for a token that was seen");
  f("dry_multiplier", o.dry_multiplier, Real{0, most}, "makes repeated runs less likely; 0: off");
  f("dry_base", o.dry_base, Real{1, most}, "grows with the length of the run");
  f("dry_allowed_length", o.dry_allowed_length, Whole{1}, "runs up to this length cost nothing more");
  f("dry_penalty_last_n", o.dry_penalty_last_n, Whole{-1}, "tokens that DRY looks back; -1: all");
  f("mirostat", o.mirostat, setting::Any{}, "keeps the surprise of the text near mirostat_tau");
  f("mirostat_tau", o.mirostat_tau, Real{0, most}, "wanted surprise, in bits");
  f("mirostat_eta", o.mirostat_eta, Real{0, 1}, "how fast it is approached");
  f("min_keep", o.min_keep, Whole{0}, "tokens that are left at least");
}

/// Errors: configuration, naming the setting, its value and what it may be.
inline void validate(SamplerOptions const& o) {
  auto const refuse = [](std::string const& what) { throw Error(ErrorKind::configuration, "Sampler", what); };
  for_each_sampler_setting(o, [&]<class T, class May>(char const* name, T const& value, May const& may, char const*) {
    if constexpr (std::is_same_v<May, setting::Any>) {
      if (!value.known()) refuse(std::string(name) + " is " + value.text() + ". Use 0, 1 or 2");
    } else if (!may.holds(value)) {
      refuse(std::string(name) + " is " + setting::text_of(value) + ", and must be " + may.text());
    }
  });
  for (auto const& [id, bias] : o.logit_bias)
    if (id < 0 || bias != bias || bias == std::numeric_limits<float>::infinity())
      refuse("the bias of token " + std::to_string(id) + " is " + setting::text_of(double(bias)) +
             ". Give a token of the vocabulary, and a number or -infinity");
}

}  // namespace infer
}  // namespace tutti
