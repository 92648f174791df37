// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which settings of a training run go with its algorithm, its optimizer and its architecture.

#include <tutti/core/error.hpp>
#include <tutti/optim/parameter_groups.hpp>
#include <tutti/parallel/compression_choice.hpp>
#include <tutti/train/choices.hpp>

#include <initializer_list>
#include <string>

namespace tutti::train::detail {

/// `refuse(name, text, what)` throws. Errors: configuration, by it.
template <class AnyOptions, class Refuse>
void check_algorithm(AnyOptions const& o, Refuse&& refuse) {
  // What is resumed may say otherwise.
  bool const remembered = !o.resume.empty() && o.checkpoint.empty();
  if (o.architecture == Architecture::gpt2 && o.resume.empty())
    for (char const* name : {"kv-heads", "hidden", "untied"})
      if (o.typed.contains(name)) refuse(name, "", "is of --architecture llama. Add that, or leave it out");
  if (o.architecture == Architecture::llama && (o.dropout > 0 || o.attention_dropout > 0))
    refuse(o.dropout > 0 ? "dropout" : "attention-dropout", "", "is of --architecture gpt2. Leave it out");
  if (o.algorithm == AlgorithmName::ddp && !remembered)
    for (char const* name : {"inner-steps", "outer-learning-rate", "outer-momentum", "fragments", "outer-bits",
                             "outer-overlap", "outer-mix"})
      if (o.typed.contains(name)) refuse(name, "", "is of --algorithm diloco. Add that, or leave it out");
  if (!remembered) {
    auto const of_others = [&](std::initializer_list<char const*> names, std::string const& whose) {
      for (char const* name : names)
        if (o.typed.contains(name)) refuse(name, "", "is of --optimizer " + whose + ". Add that, or leave it out");
    };
    if (o.optimizer == OptimizerName::adamw) of_others({"momentum"}, "sgd or muon");
    if (o.optimizer == OptimizerName::sgd) of_others({"beta1", "beta2", "epsilon"}, "adamw or muon");
    if (o.optimizer != OptimizerName::sgd) of_others({"nesterov"}, "sgd");
    if (o.optimizer != OptimizerName::muon) of_others({"muon-scale"}, "muon");
  }
  try {
    static_cast<void>(optim::parse_groups(o.groups));
  } catch (Error const& error) {
    throw Error(ErrorKind::configuration, "train_model", "--groups " + error.message() + o.source_of("groups"));
  }
  if (std::string const why = parallel::why_not(o.compress, {.every_step = o.algorithm == AlgorithmName::ddp,
                                                             .tensor_ranks = o.tensor_parallel,
                                                             .on_processors = o.device == DeviceName::cpu});
      !why.empty())
    refuse("compress", o.compress, why);
  if (o.fragments > o.inner_steps)
    refuse("fragments", std::to_string(o.fragments),
           "are more than the " + std::to_string(o.inner_steps) + " --inner-steps, in each of which one is averaged");
  if (o.outer_overlap >= o.inner_steps)
    refuse("outer-overlap", std::to_string(o.outer_overlap),
           "is not below the " + std::to_string(o.inner_steps) + " --inner-steps");
}

}  // namespace tutti::train::detail
