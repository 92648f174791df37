// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Flags for the sizes of a decoder: said, or chosen so that they fit the memory.

#include <tutti/infer/cache_type.hpp>
#include <tutti/infer/decoder_fit.hpp>
#include <tutti/train/flags.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace tutti::train {

namespace detail {

inline void add_bounded(CLI::App& app, char const* name, std::string& text, std::int64_t most,
                        std::string const& help) {
  add_number_or_auto<std::int64_t>(app, name, text, help)->check([most](std::string const& given) {
    if (given == "auto") return std::string();
    setting::Range<std::int64_t> const range{0, most};
    return range.holds(std::stoll(given)) ? std::string() : given + " must be auto or " + range.text();
  });
}

}  // namespace detail

struct DecodingFlags {
  std::string context = "0", batch = "auto";
  setting::Choice<infer::CacheType> cache = infer::CacheType::f32;
  std::int64_t memory_mb = 0;
  bool no_repack = false;

  /// Whether any of them is.
  bool said() const {
    return context != "0" || batch != "auto" || !(cache == infer::CacheType::f32) || memory_mb != 0 || no_repack;
  }
  /// 0: to be chosen.
  std::int64_t context_tokens() const { return context == "auto" ? 0 : std::stoll(context); }
  std::int64_t batch_tokens() const { return batch == "auto" ? 0 : std::stoll(batch); }
  /// Sizes that are said, and 0 for those that are to be chosen.
  void give(infer::DecoderOptions& options) const {
    options.capacity = context_tokens();
    options.batch = batch_tokens();
    options.cache = infer::block_type(cache);
    options.tiles = !no_repack;
  }
  /// For fit_decoder and fit_service. `most_context`: of a context that is chosen without auto; 0: as the model has.
  infer::FitOptions fit(nn::StoredModel const& model, int threads, std::int64_t most_context) const {
    infer::FitOptions fit;
    fit.most_context = context == "auto" ? 0 : most_context;
    fit.most_bytes = memory_mb << 20;
    fit.threads = threads;
    fit.beside = {.weights = model.bytes(), .mapped = true};
    fit.advice = advice;
    return fit;
  }
  static constexpr char advice[] =
      "Lower --context or --batch, keep the cache in --cache-type f16 or q8_0, or use a smaller model";
};

/// Those but --context.
inline void add_cache_flags(CLI::App& app, DecodingFlags& flags, std::string const& prefix = "") {
  detail::add_bounded(app, "--batch", flags.batch, 1 << 16,
                      prefix + "tokens of a prompt that go through the model at once; auto, 0: as is fast and fits");
  add_setting(app, "--cache-type", flags.cache, setting::Any{},
              prefix + "numbers of the cache; q8_0 needs heads of a multiple of 32 elements");
  add_setting(app, "--max-memory", flags.memory_mb, {0, std::int64_t{1} << 32},
              prefix + "MB that weights, caches and working memory may take; 0: what the machine has free");
  app.add_flag("--no-repack", flags.no_repack,
               prefix +
                   "weights stay in the order that the file has; else Q4_0, Q4_1 and Q8_0 are copied into a faster "
                   "one where the processor has it");
}

/// `context`: what --context bounds, and what 0 and auto choose.
inline void add_decoding_flags(CLI::App& app, DecodingFlags& flags, std::string const& context,
                               std::string const& prefix = "") {
  detail::add_bounded(app, "--context", flags.context, 1 << 24, prefix + context);
  add_cache_flags(app, flags, prefix);
}

}  // namespace tutti::train
