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
  double memory_of_all = 0;  ///< ranks: stages need differently much
  Traffic traffic;          ///< of a rank in a step
  double seconds = 0;       ///< of a step
  double compute = 0;       ///< in which a device computes
  double exposed = 0;       ///< in which it waits for collectives, or makes them
  double bubble = 0;        ///< share of the time in which stages wait for each other
  double tokens_per_second = 0;
  double model_flops = 0;   ///< operations a second and device by the model's formula, recomputation not counted
};

namespace detail {

inline double payload(graph::StepList const& list, graph::MeshAxis axis) {
  return static_cast<double>(graph::sent_bytes(list, axis));
}

/// Of a pipeline on one node, those for which it has processors; 0: for all. Those of a node among several are busy at
/// the same time.
inline double stages_at_once(Layout const& layout, Cluster const& cluster) {
  if (layout.pipeline == 1 || cluster.processors_per_node <= 0 || layout.ranks() > cluster.devices_per_node) return 0;
  return std::max(1.0, cluster.processors_per_node / (cluster.threads * layout.data * layout.tensor));
}

/// How long steps and transfers take.
struct Durations {
  StepTimes times;
  AxisCosts costs;
};

/// Of a pipeline, whose stages run their own programs; their updates come at the same time, when all have added up the
/// squares of the gradients.
inline void predict_pipeline(Prediction& result, RankPrograms& programs, Durations const& of_pass,
                             Durations const& of_update, Cluster const& cluster, Simulation* picture) {
  Layout const& layout = result.layout;
  int const stages = layout.pipeline, count = stages * layout.chunks;
  auto const micro = static_cast<double>(layout.micro_steps);
  std::vector<Traffic> traffic(static_cast<std::size_t>(stages));
  double exposed = 0;  // of all stages
  auto const seconds = [&](graph::Program const& program, int stage, double runs, Durations const& takes) {
    Traffic sent;
    PassTimes const told = simulate_pass(program.list, takes.times, takes.costs, {}, sent);
    traffic[static_cast<std::size_t>(stage)].add(sent, runs);
    exposed += told.exposed * runs;
    Memory& memory = programs.memory[static_cast<std::size_t>(stage)];
    memory.messages = std::max(memory.messages, told.held);
    return told.seconds;
  };
  auto const of = [&](int stage) -> train::CompiledStage const& {
    return programs.stages[programs.stage[static_cast<std::size_t>(stage)]];
  };
  std::vector<StageTimes> parts;
  for (int part = 0; part < count; ++part) {
    int const stage = part % stages;
    parallel::StagePrograms const& one = of(stage).parts.programs[static_cast<std::size_t>(part / stages)];
    StageTimes t;
    t.forward = seconds(one.forward, stage, micro, of_pass);
    t.weights = seconds(one.backward, stage, micro, of_pass);
    t.backward = t.weights + (one.splits ? seconds(one.inputs, stage, micro, of_pass) : 0);
    parts.push_back(t);
  }
  double update = 0;
  for (int stage = 0; stage < stages; ++stage)
    update = std::max(update, seconds(of(stage).update, stage, 1, of_update));

  // Ranks of a tensor axis have the same activations. Of devices each sends its part, and the next stage's gather them
  // (Narayanan et al. 2021); the trainer's send all.
  graph::MeshAxis const axis = graph::MeshAxis::pipeline;
  AxisCosts const& costs = of_pass.costs;
  bool const scatters = cluster.device.kind == DeviceKind::cuda && layout.tensor > 1;
  auto const bytes = static_cast<double>(of(0).message_bytes(0, false));
  auto const message = [&](double size) {
    return cost_of_message(size, costs.group(axis), costs.cluster(), costs.sharing(axis));
  };
  TransferCost send = message(scatters ? bytes / layout.tensor : bytes);
  for (int stage = 0; stage < stages; ++stage) {  // the ends send nothing on, or back
    int const ends = (stage == 0 ? 1 : 0) + (stage + 1 == stages ? 1 : 0);
    traffic[static_cast<std::size_t>(stage)].add(axis, send, micro * (2 * layout.chunks - ends));
  }
  if (scatters) send.seconds += costs(Collective::all_gather, bytes, graph::MeshAxis::tensor).seconds;
  std::vector<SumOfStages> sums;
  for (RankPrograms::Shared const& sum : programs.sums) {
    TransferCost const cost = message(sum.bytes);
    sums.push_back({sum.stages, cost.seconds});
    traffic[0].add(axis, cost, static_cast<double>(sum.stages.size() - 1));
  }
  PipelineTimes const pipeline = simulate_pipeline(layout.stages(), parts, layout.micro_steps, send.seconds, picture,
                                                   stages_at_once(layout, cluster), sums);
  result.traffic = *std::max_element(traffic.begin(), traffic.end(),
                                     [](Traffic const& a, Traffic const& b) { return a.all() < b.all(); });
  result.seconds = pipeline.seconds + pipeline.sums + update;
  result.bubble = pipeline.bubble * pipeline.seconds / result.seconds;
  result.exposed = exposed / stages + pipeline.sums;
  result.compute = result.seconds * (1 - result.bubble) - result.exposed;
}

/// A link that was measured with all ranks of a node at once, while only those of one stage work, `crowding` times as
/// long: transfers in shared memory are made by the ranks themselves, as steps are.
inline Link at_turns(Link link, double crowding) noexcept {
  if (!link.shared_memory) return link;
  for (double* const rate : {&link.bandwidth, &link.gather, &link.scatter, &link.message}) *rate /= crowding;
  link.latency *= crowding;
  return link;
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
  // With `ranks` of a node at work, beside how long what was measured took.
  auto const durations = [&](int ranks) {
    double crowding = cluster.crowding(ranks);
    if (measured != nullptr && cluster.processors_per_node > 0)
      crowding /= std::max(1.0, measured->ranks_on_node * measured->threads / cluster.processors_per_node);
    Cluster near = cluster;
    if (measured != nullptr && ranks != on_node) near.inside = detail::at_turns(near.inside, crowding);
    return detail::Durations{StepTimes(cluster.device, measured, crowding), AxisCosts(layout, near)};
  };
  detail::Durations const all = durations(on_node);
  RankPrograms programs = compile_programs<Loss>(config, work.options, work.optimizer, layout, cluster, where);
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
          simulate_pass(pass.program.list, all.times, all.costs, gather, traffic, updates ? picture : nullptr);
      auto const runs = static_cast<double>(pass.runs);
      result.seconds += runs * told.seconds;
      result.compute += runs * told.compute;
      result.exposed += runs * told.exposed;
      programs.memory[0].messages = std::max(programs.memory[0].messages, told.held);
      result.traffic.add(traffic, runs);
    }
    if (layout.zero == 2 && layout.data > 1 && !programs.gathers) {  // parameters come back once
      TransferCost const cost =
          all.costs(Collective::all_gather, detail::payload(programs.passes.back().program.list, graph::MeshAxis::data),
                    graph::MeshAxis::data);
      result.traffic.add(graph::MeshAxis::data, cost);
      result.seconds += cost.seconds;
      result.exposed += cost.seconds;
    }
  } else {
    // Where stages take turns at processors the simulation makes them wait.
    bool const turns = detail::stages_at_once(layout, cluster) > 0;
    detail::predict_pipeline(result, programs, turns ? durations(layout.data * layout.tensor) : all, all, cluster,
                             picture);
  }
  result.seconds += work.step_overhead;
  result.memory = programs.most_memory(on_node);
  for (Memory const& memory : programs.memory)
    result.memory_of_all += memory.rank(on_node) * layout.data * layout.tensor;
  result.memory_of_rank = result.memory.rank(on_node);
  if (cluster.device.memory > 0 && result.memory_of_rank > cluster.device.memory)
    result.refused = concat("memory: needs ", train::human_bytes(result.memory_of_rank), " of ",
                            train::human_bytes(cluster.device.memory));
  double const tokens = static_cast<double>(work.options.batch * work.options.sequence) *
                        static_cast<double>(layout.micro_steps) * layout.data;
  result.tokens_per_second = tokens / result.seconds;
  double parameters = programs.parameters;
  if constexpr (requires { nn::parameter_count(config); })
    parameters = static_cast<double>(nn::parameter_count(config));
  result.model_flops = result.tokens_per_second / layout.ranks() *
                       train::flops_per_token(config, work.options.sequence, static_cast<std::int64_t>(parameters));
  return result;
}

}  // namespace tutti::plan
