// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The graphs of a training step, from the model's function.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/amp.hpp>
#include <tutti/graph/param.hpp>
#include <tutti/optim/gradient_statistics.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/parallel/data_parallel.hpp>
#include <tutti/parallel/gather_parameters.hpp>
#include <tutti/parallel/rank_parts.hpp>
#include <tutti/parallel/shard.hpp>
#include <tutti/train/inputs.hpp>
#include <tutti/train/loss_context.hpp>
#include <tutti/train/step_options.hpp>
#include <tutti/train/target_weights.hpp>

#include <cstddef>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>

namespace tutti::train {

/// Errors: unavailable, for what programs cannot do on this device, or not together. `crosses`: whether they may cross
/// ranks; `pipelines`: whether ranks may be stages.
inline void require_possible(TrainStepOptions const& options, bool on_processors, bool crosses, bool pipelines,
                             std::source_location where) {
  auto const refuse = [&](char const* why) { throw Error(ErrorKind::unavailable, "TrainStep", why, where); };
  if (options.sequence_parallel && options.tensor == 1)
    throw Error(ErrorKind::configuration, "TrainStep",
                "sequence parallelism is of the ranks of a tensor axis, and the step is made for one. Leave out "
                "TrainStepOptions::sequence_parallel, or set tensor", where);
  if (options.tensor > 1 && !crosses)
    refuse("programs on this device do not cross ranks. Use one rank of the tensor axis");
  if (options.compress && !on_processors)
    refuse("gradients are compressed by processors alone. Leave out TrainStepOptions::compress");
  if (options.compress && options.tensor > 1)
    refuse("gradients are not compressed where ranks of a tensor axis have parts of them. Leave out "
           "TrainStepOptions::compress, or use one rank of the tensor axis");
  if (options.state_ranks > 1) {
    if (options.compress) refuse("gradients in parts are not compressed. Leave out TrainStepOptions::compress");
    if (options.keep_packed) refuse("parameters in parts are not kept packed. Leave out keep_packed");
  }
  if (!options.offload_optimizer.empty() && !on_processors)
    refuse("a device keeps the optimizer's state in its own memory. Leave out TrainStepOptions::offload_optimizer");
  if (options.pipeline.stages == 1) return;
  if (!pipelines) refuse("programs on this device are no stages of pipelines. Use one stage");
  if (options.keep_packed) refuse("stages of a pipeline keep no packed weights. Leave out keep_packed");
}

/// Errors: unavailable, where this rank is a stage of a pipeline.
inline void refuse_stages(TrainStepOptions const& options, char const* what, std::source_location where) {
  if (options.pipeline.stages > 1)
    throw Error(ErrorKind::unavailable, "TrainStep", concat("stages of a pipeline ", what, ". Use one stage"), where);
}

/// Of those that a step is to be connected to; it is made for as many as the options say. `averages`: whether its
/// programs average gradients. Errors: invalid_argument, unavailable.
inline void require_ranks(parallel::DataParallel const& ranks, TrainStepOptions const& options, bool averages,
                          std::source_location where) {
  if (int const found = ranks.tensor ? ranks.tensor->size() : 1; found != options.tensor)
    throw Error(ErrorKind::invalid_argument, "TrainStep::connect",
                concat("the ranks of the tensor axis are ", found, ", and the step is made for ", options.tensor,
                       ". Set TrainStepOptions::tensor to as many"), where);
  if (int const found = ranks.port ? ranks.port->size() : 1; options.state_ranks > 1 && found != options.state_ranks)
    throw Error(ErrorKind::invalid_argument, "TrainStep::connect",
                concat("the ranks of the data axis are ", found, ", and the step is made for ", options.state_ranks,
                       " with parts of its state. Set TrainStepOptions::state_ranks to as many"), where);
  if (ranks.sharded && options.state_ranks > 1)
    throw Error(ErrorKind::unavailable, "TrainStep::connect",
                "ranks that have parts of parameters have their moments with them. Use Replicas::per_rank", where);
  if (ranks.port && ranks.port->size() > 1 && !averages)
    throw Error(ErrorKind::unavailable, "TrainStep::connect",
                "gradients are not averaged between ranks on this device. Train with one rank, or by DiLoCo, which "
                "averages models", where);
}

/// The output "loss" of a rank that has all of the model; of an evaluation nothing is dropped.
template <class Loss>
graph::Graph loss_graph(typename Loss::Config const& config, TrainStepOptions const& options, bool evaluates,
                        std::source_location where = std::source_location::current()) {
  graph::Graph model = graph::trace(make_parameters(config), [&](graph::Builder& builder, auto const& parameters) {
    builder.output("loss", loss_of<Loss>({builder, !evaluates}, parameters, inputs_of<Loss>(config, options.sequence),
                                         evaluates ? options.evaluation_batch : options.batch, where));
  }, where);
  if (evaluates) graph::stop_dropout(model);
  return model;
}

/// What ranks of the tensor axis have of the parameters of `model`, as the configuration's shard_rules say.
/// Errors: configuration, in figures; unavailable, for a model without rules.
template <class Config>
parallel::Splits splits_of(Config const& config, graph::Graph const& model, int tensor, std::source_location where) {
  if (tensor == 1) return {};
  if (tensor < 1)
    throw Error(ErrorKind::configuration, "TrainStep", "the tensor axis must have at least 1 rank", where);
  if constexpr (requires { shard_rules(config); }) return {model, shard_rules(config), tensor, where};
  else
    throw Error(ErrorKind::unavailable, "TrainStep",
                "the model does not say which parameters ranks of the tensor axis divide. Give its configuration a "
                "free function shard_rules(config) that returns nn::ShardRules",
                where);
}

/// The graph of a whole model, as a rank runs it that has these parts of it. Between the passes of a pipeline nothing
/// is kept that was gathered, whatever the options say.
inline graph::Graph part_graph(graph::Graph model, TrainStepOptions const& options, parallel::RankParts const& parts) {
  for (parallel::Splits const& splits : parts.levels())
    model = splits.axis() == graph::MeshAxis::data
                ? parallel::gather_parameters(model, splits, options.gather_again || options.pipeline.stages > 1)
                : parallel::shard(model, splits, options.sequence_parallel);
  return model;
}
/// What a rank has of the parameters of `model`: a part along the tensor axis, and of that some rows along the axis of
/// data, where `options` say so. Errors: as above.
template <class Config>
parallel::RankParts parts_of(Config const& config, graph::Graph const& model, TrainStepOptions const& options,
                             std::source_location where) {
  parallel::RankParts parts;
  parts.divide(splits_of(config, model, options.tensor, where));
  if (options.state_ranks < 1)
    throw Error(ErrorKind::configuration, "TrainStep", "at least 1 rank has the state", where);
  if (options.state_ranks > 1)
    parts.divide(parallel::parameter_parts(part_graph(model, options, parts), options.state_ranks, where));
  return parts;
}

/// What becomes of the gradients of a step.
enum class StepWork : unsigned char { updates, measures };

/// The program of `pass`, or the loss alone; of a rank that has its part of the model where `parts` say so.
/// Gradients are averaged over `ranks` of the data axis. What measures updates nothing but sums between micro-steps,
/// and does not compress.
template <class Loss>
graph::Graph step_graph(typename Loss::Config const& config, TrainStepOptions const& options,
                        optim::AnyOptimizer const& optimizer, parallel::RankParts const& parts,
                        std::optional<optim::Pass> pass, int ranks, StepWork work = StepWork::updates) {
  auto const minimise = [&](graph::Var loss) {
    if (options.weigh_targets) loss = loss * loss.builder->scalar(target_weight_name, DType::float32);
    optim::StepOptions const of{.clip = options.clip,
                                .micro_steps = options.micro_steps,
                                .reduce = ranks > 1,
                                .weight = options.weight,
                                .recompute = options.recompute,
                                .frozen = List<std::string_view>(options.frozen.begin(), options.frozen.end()),
                                .groups = options.groups,
                                .compress = &options.compress,
                                .ranks = ranks};
    if (work == StepWork::measures) optim::measure_gradients(loss, *pass, of);
    else optim::minimise(loss, *pass, optimizer, of);
  };
  graph::Graph graph;
  if (pass && parts.empty()) {
    graph = graph::trace(make_parameters(config), [&](graph::Builder& builder, auto const& parameters) {
      minimise(loss_of<Loss>({builder}, parameters, inputs_of<Loss>(config, options.sequence), options.batch));
    });
  } else {
    graph = part_graph(loss_graph<Loss>(config, options, !pass), options, parts);
    if (pass) {
      graph::Id const loss = graph.find_output("loss");
      graph.outputs = {};
      graph::Builder builder;
      builder.load(std::move(graph));
      minimise({&builder, loss});
      graph = canonical(builder.graph());
    }
  }
  if (!pass) graph.updates = {};  // evaluation changes nothing
  for (std::size_t i = graph.updates.size(); work == StepWork::measures && i-- > 0;)
    if (!optim::is_accumulator(graph.name(graph.updates[i].target))) graph.updates.erase(i);
  return graph::amp(graph, options.compute);
}

}  // namespace tutti::train
