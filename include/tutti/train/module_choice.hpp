// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which StableHLO module a run trains: from flags, or a checkpoint that is resumed.

#include <tutti/train/setup.hpp>
#include <tutti/train/stablehlo_model.hpp>

#include <cstdint>
#include <string>

namespace tutti::train::detail {

/// The module of the flags, or the one that the checkpoint was trained with. Batch and sequence are the module's,
/// unless flags say others.
inline StablehloConfig module_of(Setup& s) {
  Options& o = s.options;
  std::string file = o.model;
  Json const model = s.resume ? s.resume->facts().at("model") : Json();
  if (s.resume && file.empty()) file = model.value("file", std::string());
  if (!file.ends_with(".mlir")) refuse("--model " + file + ": the checkpoint's model is a StableHLO module (.mlir)");
  StablehloConfig config = read_stablehlo(file);
  if (s.resume && model.value("hash", std::string()) != config.hash)
    refuse("--model " + file + " is not the module that the checkpoint was trained with, " +
           model.value("file", std::string()) + ": their texts differ. Give the one that it was");
  for (char const* const name :
       {"architecture", "kv-heads", "hidden", "untied", "dropout", "attention-dropout", "pack"})
    if (o.typed.contains(name))
      refuse("--" + std::string(name) + " says nothing of --model " + file + ". Leave it out");
  auto const adopt = [&](char const* name, std::int64_t& value, std::int64_t wanted) {
    if (!o.given.contains(name) && !s.resume) value = wanted;
    if (value != wanted)
      refuse("--" + std::string(name) + " " + std::to_string(value) + o.source_of(name) + ": --model " + file +
             " was exported for batches of " + std::to_string(config.batch) + " x " + std::to_string(config.sequence) +
             ". Leave out --batch and --sequence, or export it for others");
  };
  adopt("batch", o.batch, config.batch);
  adopt("sequence", o.sequence, config.sequence);
  config.vocabulary = s.resume ? model.value("vocabulary", std::int64_t{0}) : o.vocabulary;
  if (config.vocabulary == 0 && s.tokenizer) config.vocabulary = s.tokenizer->tokenizer.vocabulary();
  return config;
}

}  // namespace tutti::train::detail
