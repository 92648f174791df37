// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which layouts of ranks go with which other settings of a training run.

#include <tutti/train/choices.hpp>

#include <string>

namespace tutti::train::detail {

/// `refuse(name, text, what)` throws. Errors: configuration, by it.
template <class AnyOptions, class Refuse>
void check_layout(AnyOptions const& o, Refuse&& refuse) {
  if (o.tensor_parallel > 1) {
    std::string const ranks = std::to_string(o.tensor_parallel);
    if (o.device != DeviceName::cpu)
      refuse("tensor-parallel", ranks, "is for --device cpu alone. Leave it out, or train on processors");
    if (o.algorithm != AlgorithmName::ddp)
      refuse("tensor-parallel", ranks, "is for --algorithm ddp, which averages gradients every step. Leave out one");
    if (o.optimizer == OptimizerName::muon)
      refuse("tensor-parallel", ranks,
             "divides matrices, of which muon needs the whole. Use --optimizer adamw or sgd, or leave it out");
    if (o.attention_dropout > 0)
      refuse("tensor-parallel", ranks,
             "divides heads, and --attention-dropout draws its masks over all of them. Leave out one");
  }
  if (o.pipeline_parallel > 1) {
    std::string const ranks = std::to_string(o.pipeline_parallel);
    auto const refuse_stages = [&](std::string const& what) { refuse("pipeline-parallel", ranks, what); };
    if (o.device != DeviceName::cpu) refuse_stages("is for --device cpu alone. Leave it out, or train on processors");
    if (o.algorithm != AlgorithmName::ddp)
      refuse_stages("is for --algorithm ddp, which averages gradients every step. Leave out one");
    if (o.zero > 0) refuse_stages("keeps all moments of a stage. Leave out --zero");
    if (!o.compress.empty()) refuse_stages("sends gradients as they are. Leave out --compress");
    if (o.keep_packed) refuse_stages("keeps no packed weights. Leave out --keep-packed");
    if (o.profile) refuse_stages("is not profiled. Leave out --profile");
    if (o.gradient_statistics > 0) refuse_stages("has no statistics of gradients. Leave out --gradient-statistics");
  } else if (o.typed.contains("pipeline-schedule")) {
    refuse("pipeline-schedule", o.pipeline_schedule.text(), "is of --pipeline-parallel. Add that, or leave it out");
  }
  if (!o.offload_optimizer.empty() && o.device != DeviceName::cpu)
    refuse("offload-optimizer", o.offload_optimizer,
           "is for --device cpu: a device keeps moments in its own memory. Leave it out");
  if (o.zero > 0) {
    if (o.device != DeviceName::cpu) refuse("zero", "1", "is for --device cpu alone. Leave it out");
    if (o.algorithm != AlgorithmName::ddp)
      refuse("zero", "1", "is for --algorithm ddp: replicas of diloco need all of their moments. Leave out one");
    if (o.optimizer == OptimizerName::sgd)
      refuse("zero", "1", "shares out adamw's moments, of which --optimizer sgd has none. Leave it out");
    if (o.tensor_parallel > 1) refuse("zero", "1", "is not there for --tensor-parallel. Leave out one");
  }
}

}  // namespace tutti::train::detail
