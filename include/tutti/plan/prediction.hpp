// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a layout of a training step will cost on a cluster: memory, traffic, bubble, time. Programs, not formulae of
/// models, say what there is to do.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/plan/pipeline.hpp>
#include <tutti/plan/programs.hpp>
#include <tutti/plan/step_simulation.hpp>
#include <tutti/train/console.hpp>
#include <tutti/train/model_facts.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::plan {

/// What is trained, beside the model: the same for every layout that is compared.
struct Work {
  train::TrainStepOptions options{};  ///< batch of one rank and micro-step
  optim::AnyOptimizer optimizer = optim::AdamW{};
  double step_overhead = 0;         ///< seconds of a step beside its programs
};

struct Prediction {
  Layout layout;
  std::int64_t batch = 0;   ///< sequences of one rank and micro-step
  graph::Recompute recompute = graph::Recompute::none;
  std::string refused;      ///< why it cannot be; then times and traffic mean nothing
  Memory memory;            ///< of the rank that needs most
  double memory_of_rank = 0;
  Traffic traffic;          ///< of a rank in a step
  double seconds = 0;       ///< of a step
  double compute = 0;       ///< in which a device computes
  double exposed = 0;       ///< in which it waits for collectives, or makes them
  double bubble = 0;        ///< share of the time in which stages wait for each other
  double tokens_per_second = 0;
  double model_flops = 0;   ///< operations a second and device by the model's formula, recomputation not counted
};

namespace detail {

/// Seconds of the parts of a pass in which nothing overlaps but gradients, layers and the rest apart.
struct Segments {
  std::array<double, 4> layers{}, rest{};  ///< by Phase
  double gradients = 0;                    ///< seconds of collectives of the data axis
};

inline Segments segments_of(graph::StepList const& list, StepTimes const& times, AxisCosts const& costs,
                            Traffic& traffic, std::int64_t micro) {
  Segments found;
  std::vector<Phase> const phases = phases_of(list);
  for (std::size_t s = 0; s < list.steps.size(); ++s) {
    graph::Step const& step = list.steps[s];
    Collective kind{};
    double bytes = 0, seconds = 0;
    if (graph::is_wait(step.kind)) continue;
    if (collective_of(step, kind, bytes)) {
      TransferCost const cost = costs(kind, bytes, step.mesh_axis);
      // Sums of gradients; what ZeRO gathers and scatters goes with every micro-batch.
      bool const once = step.mesh_axis == graph::MeshAxis::data && step.kind == graph::StepKind::all_reduce_start;
      traffic.add(step.mesh_axis, cost, once ? 1 : static_cast<double>(micro));
      if (once) {
        found.gradients += cost.seconds;
        continue;
      }
      seconds = cost.seconds;
    } else {
      seconds = times.seconds(step);
    }
    auto const phase = static_cast<std::size_t>(phases[s]);
    (step.layer >= 0 ? found.layers : found.rest)[phase] += seconds;
  }
  return found;
}

/// Bytes that a forward pass keeps for the backward pass.
inline double kept_activations(graph::Program const& program) {
  std::vector<Phase> const phases = phases_of(program.list);
  auto const first_of = [&](Phase phase) {
    return static_cast<std::int32_t>(std::find(phases.begin(), phases.end(), phase) - phases.begin());
  };
  std::int32_t const head = first_of(Phase::head), backward = first_of(Phase::backward);
  double bytes = 0;
  for (std::size_t i = 0; i < program.list.buffers.size(); ++i) {
    graph::Buffer const& buffer = program.list.buffers[i];
    graph::MemoryPlan::Life const life = program.plan.life[i];
    bool const root = buffer.part_of < 0 && buffer.over < 0 && buffer.pool == graph::Pool::arena;
    if (root && life.first >= 0 && life.first < head && life.last >= backward)
      bytes += static_cast<double>(buffer.bytes);
  }
  return bytes;
}

inline double payload(graph::StepList const& list, graph::MeshAxis axis) {
  return static_cast<double>(graph::sent_bytes(list, axis));
}

}  // namespace detail

/// `picture`, where it is not null, becomes the simulation of the pass that updates, or of the pipeline.
/// Errors: configuration, for a layout that does not fit the cluster, or has nothing that tells how fast it is;
/// configuration, unavailable, for what the model's parts cannot be divided into.
template <class Loss>
Prediction predict(typename Loss::Config const& config, Work const& work, Layout const& layout, Cluster const& cluster,
                   MeasuredSteps const* measured = nullptr, Simulation* picture = nullptr,
                   std::source_location where = std::source_location::current()) {
  if (layout.ranks() > cluster.devices())
    throw Error(ErrorKind::configuration, "plan",
                concat(to_string(layout), " has ", layout.ranks(), " ranks, and ", cluster.name, " ",
                       cluster.devices(), " devices. Choose a smaller layout"), where);
  Prediction result;
  result.layout = layout;
  result.batch = work.options.batch;
  result.recompute = work.options.recompute;
  int const on_node = std::min(cluster.devices_per_node, layout.ranks());
  AxisCosts const costs(layout, cluster);
  double crowding = cluster.crowding(on_node);
  if (measured != nullptr && cluster.processors_per_node > 0)
    crowding /= std::max(1.0, measured->ranks_on_node * measured->threads / cluster.processors_per_node);
  StepTimes const times(cluster.device, measured, crowding);
  RankPrograms programs = compile_programs<Loss>(config, work.options, work.optimizer, layout, cluster, where);
  result.memory = programs.memory;
  double const micro = static_cast<double>(layout.micro_steps);
  graph::Program const& last = programs.passes.back().program;

  if (layout.pipeline == 1) {
    LayerGather gather;
    if (layout.zero == 3 && layout.data > 1 && !programs.gathers)
      gather.bytes = programs.layer_parameters * (work.options.compute == DType::bfloat16 ? 2 : 4);
    for (RankPrograms::Pass& pass : programs.passes) {
      bool const updates = &pass == &programs.passes.back();
      if (layout.zero >= 2 && !programs.gathers)  // each rank sums up its share of the gradients
        for (graph::Step& step : pass.program.list.steps)
          step.scatter |= step.kind == graph::StepKind::all_reduce_start;
      Traffic traffic;
      PassTimes const told =
          simulate_pass(pass.program.list, times, costs, gather, traffic, updates ? picture : nullptr);
      auto const runs = static_cast<double>(pass.runs);
      result.seconds += runs * told.seconds;
      result.compute += runs * told.compute;
      result.exposed += runs * told.exposed;
      for (std::size_t axis = 0; axis < graph::mesh_axes; ++axis) {
        result.traffic.inside[axis] += runs * traffic.inside[axis];
        result.traffic.between[axis] += runs * traffic.between[axis];
      }
    }
    if (layout.zero == 2 && layout.data > 1 && !programs.gathers) {  // parameters come back once
      TransferCost const cost =
          costs(Collective::all_gather, detail::payload(last.list, graph::MeshAxis::data), graph::MeshAxis::data);
      result.traffic.add(graph::MeshAxis::data, cost);
      result.seconds += cost.seconds;
      result.exposed += cost.seconds;
    }
  } else {
    detail::Segments const parts = detail::segments_of(last.list, times, costs, result.traffic, layout.micro_steps);
    int const stages = layout.pipeline;
    auto const at = [](std::array<double, 4> const& seconds, Phase phase) {
      return seconds[static_cast<std::size_t>(phase)];
    };
    int const count = stages * layout.chunks;
    std::vector<StageTimes> stage(static_cast<std::size_t>(count));
    for (int part = 0; part < count; ++part) {
      StageTimes& t = stage[static_cast<std::size_t>(part)];
      double const layers = layout.layers.empty() ? static_cast<double>(programs.layers) / count
                                                  : static_cast<double>(layout.layers[static_cast<std::size_t>(part)]);
      double const share = layers / static_cast<double>(programs.stage_layers);
      t.forward = at(parts.layers, Phase::forward) * share + (part == 0 ? at(parts.rest, Phase::forward) : 0);
      t.backward = at(parts.layers, Phase::backward) * share + (part == 0 ? at(parts.rest, Phase::backward) : 0) +
                   (part + 1 == count ? at(parts.rest, Phase::head) : 0);
      t.weights = at(parts.layers, Phase::backward) * share / 2;  // of two products for each of the forward pass
    }
    // Ranks of a tensor axis have the same activations: each sends its part, and the next stage's gather them.
    double const bytes = programs.boundary / layout.tensor;
    Group const group = costs.group(graph::MeshAxis::pipeline);
    TransferCost send = cost_of_message(bytes, group, cluster, costs.sharing(graph::MeshAxis::pipeline));
    TransferCost const whole = costs(Collective::all_gather, programs.boundary, graph::MeshAxis::tensor);
    result.traffic.add(graph::MeshAxis::pipeline, send, 2 * micro * layout.chunks);
    send.seconds += layout.tensor > 1 ? whole.seconds : 0;
    PipelineTimes const pipeline =
        simulate_pipeline(layout.stages(), stage, layout.micro_steps, send.seconds, picture);
    double const hidden = at(parts.layers, Phase::backward);  // of the last micro-batch
    double const update = at(parts.rest, Phase::update) + at(parts.layers, Phase::update);
    result.exposed = std::max(0.0, parts.gradients - hidden);
    result.seconds = pipeline.seconds + result.exposed + update;
    result.bubble = pipeline.bubble * pipeline.seconds / result.seconds;
    result.compute = pipeline.seconds * (1 - pipeline.bubble) + update;
    double const held = held_micro_batches(layout.stages(), layout.micro_steps);
    result.memory.workspace += std::max(0.0, held - 1) * detail::kept_activations(last);
  }
  result.seconds += work.step_overhead;
  result.memory_of_rank = result.memory.rank(on_node);
  if (cluster.device.memory > 0 && result.memory_of_rank > cluster.device.memory)
    result.refused = concat("memory: needs ", train::human_bytes(result.memory_of_rank), " of ",
                            train::human_bytes(cluster.device.memory));
  double const tokens = static_cast<double>(work.options.batch * work.options.sequence) * micro * layout.data;
  result.tokens_per_second = tokens / result.seconds;
  double parameters = programs.parameters;
  if constexpr (requires { nn::parameter_count(config); })
    parameters = static_cast<double>(nn::parameter_count(config));
  result.model_flops = result.tokens_per_second / layout.ranks() *
                       train::flops_per_token(config, work.options.sequence, static_cast<std::int64_t>(parameters));
  return result;
}

}  // namespace tutti::plan
