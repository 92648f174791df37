// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The flags of programs that draw text.

#include <tutti/infer/sampler_options.hpp>
#include <tutti/train/flags.hpp>

#include <algorithm>
#include <string>

namespace tutti::train {

/// A flag for every setting of the sampler, --top-k of top_k, and --seed.
inline void add_sampling_flags(CLI::App& app, infer::SamplerOptions& options, std::string const& seed_help) {
  infer::for_each_sampler_setting(options, [&](std::string flag, auto& value, auto const& may, char const* help) {
    std::replace(flag.begin(), flag.end(), '_', '-');
    add_setting(app, "--" + flag, value, may, help);
  });
  add_number(app, "--seed", options.seed, seed_help)->capture_default_str();
}

}  // namespace tutti::train
