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
    if (o.device == DeviceName::iree) refuse("tensor-parallel", ranks, "is for --device cpu and cuda. Leave it out");
    if (o.algorithm != AlgorithmName::ddp)
      refuse("tensor-parallel", ranks, "is for --algorithm ddp, which averages gradients every step. Leave out one");
    if (o.optimizer == OptimizerName::muon)
      refuse("tensor-parallel", ranks,
             "divides matrices, of which muon needs the whole. Use --optimizer adamw or sgd, or leave it out");
    if (o.attention_dropout > 0)
      refuse("tensor-parallel", ranks,
             "divides heads, and --attention-dropout draws its masks over all of them. Leave out one");
    bool const remembered = !o.resume.empty() && o.checkpoint.empty();  // the length is the checkpoint's
    if (o.sequence_parallel && !remembered && o.sequence % o.tensor_parallel != 0)
      refuse("sequence-parallel", "",
             "shares out tokens, and --sequence " + std::to_string(o.sequence) + " does not divide among the " + ranks +
                 " ranks of --tensor-parallel. Choose a length that does");
  } else if (o.sequence_parallel) {
    refuse("sequence-parallel", "", "is of the ranks of --tensor-parallel. Add that, or leave it out");
  }
  if (o.pipeline_parallel > 1) {
    std::string const ranks = std::to_string(o.pipeline_parallel);
    auto const refuse_stages = [&](std::string const& what) { refuse("pipeline-parallel", ranks, what); };
    if (o.device == DeviceName::iree) refuse_stages("is for --device cpu and cuda. Leave it out");
    if (o.algorithm != AlgorithmName::ddp)
      refuse_stages("is for --algorithm ddp, which averages gradients every step. Leave out one");
    if (o.keep_packed) refuse_stages("keeps no packed weights. Leave out --keep-packed");
    if (o.gradient_statistics > 0) refuse_stages("has no statistics of gradients. Leave out --gradient-statistics");
  } else if (o.typed.contains("pipeline-schedule")) {
    refuse("pipeline-schedule", o.pipeline_schedule.text(), "is of --pipeline-parallel. Add that, or leave it out");
  }
  if (!o.stage_layers.empty() && o.pipeline_parallel == 1)
    refuse("stage-layers", o.stage_layers, "is of --pipeline-parallel. Add that, or leave it out");
  if (o.virtual_stages > 1 && o.pipeline_schedule != parallel::PipelineSchedule::interleaved)
    refuse("virtual-stages", std::to_string(o.virtual_stages),
           "is of --pipeline-schedule interleaved. Add that, or leave it out");
  if (!o.offload_optimizer.empty() && o.device != DeviceName::cpu)
    refuse("offload-optimizer", o.offload_optimizer,
           "is for --device cpu: a device keeps moments in its own memory. Leave it out");
  if (o.zero > 0) {
    auto const refuse_zero = [&](std::string const& what) { refuse("zero", std::to_string(o.zero), what); };
    bool const divides = o.zero_stage() > 1;  // parameters and gradients too
    std::string const instead = o.device == DeviceName::cpu ? "use --zero 1" : "leave out --zero";
    if (o.device == DeviceName::iree) refuse_zero("is for --device cpu and cuda. Leave it out");
    if (o.algorithm != AlgorithmName::ddp)
      refuse_zero("is for --algorithm ddp: replicas of diloco need all of their moments. Leave out one");
    if (o.zero == 1 && o.optimizer == OptimizerName::sgd)
      refuse_zero("shares out adamw's moments, of which --optimizer sgd has none. Leave it out");
    if (divides && o.optimizer == OptimizerName::muon)
      refuse_zero("divides matrices, of which muon needs the whole. Use --optimizer adamw or sgd, or " + instead);
    if (divides && o.typed.contains("bucket-bytes"))
      refuse_zero("scatters every parameter's gradient by itself. Leave out --bucket-bytes, or " + instead);
    if (divides && !o.compress.empty() && o.compress != "none")
      refuse_zero("sends gradients as they are. Say --compress none, or " + instead);
    if (divides && o.keep_packed) refuse_zero("keeps no packed weights. Leave out --keep-packed, or " + instead);
    if (divides && o.gradient_statistics > 0)
      refuse_zero("has no statistics of gradients. Leave out --gradient-statistics, or " + instead);
  }
}

}  // namespace tutti::train::detail
