// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The programs of one rank of a layout, compiled as a training step compiles them, and the memory that they need.
/// Nothing of it is allocated: a plan of a model of any size takes milliseconds.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/graph/program.hpp>
#include <tutti/optim/minimise.hpp>
#include <tutti/plan/cluster.hpp>
#include <tutti/plan/layout.hpp>
#include <tutti/train/step_graph.hpp>
#include <tutti/train/step_programs.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <vector>

namespace tutti::plan {

/// Of one rank, in bytes.
struct Memory {
  double parameters = 0;  ///< and their gradients' sums between micro-steps
  double moments = 0;
  double workspace = 0;   ///< activations, gradients, temporaries
  double tokens = 0;      ///< of a step's batch
  double process = 0;     ///< program, libraries, stacks
  double shared = 0;      ///< of parameters and moments, what the ranks of a node have one copy of

  /// What a rank needs: of what is shared, its part of the node's copy.
  double rank(int ranks_on_node) const noexcept {
    return parameters + moments + workspace + tokens + process - shared * (1 - 1.0 / ranks_on_node);
  }
};

struct RankPrograms {
  struct Pass {
    std::int64_t runs = 1;  ///< in a step
    graph::Program program;
  };
  std::vector<Pass> passes;  ///< as StepPrograms has them; the last one updates
  Memory memory;
  std::set<std::string> names;  ///< of parameters
  double parameters = 0;        ///< numbers of this rank
  double layer_parameters = 0;  ///< of one layer
  double boundary = 0;          ///< bytes of activations between two layers
  std::int64_t layers = 0;
  std::int64_t stage_layers = 0;  ///< of the stage with the most, whose programs these are
  graph::Target target = graph::Target::cpu;
  bool gathers = false;         ///< under ZeRO 2 and 3: they gather parameters and scatter gradients themselves
};

namespace detail {

/// Parameters and moments as a State would have them, by name.
class PlannedState {
 public:
  void add(graph::Graph const& graph) {
    for (graph::Parameter const& parameter : graph.parameters)
      add(graph, parameter.node, true, parameter.stacked, false);
    for (graph::Id const id : graph.states)
      add(graph, id, false, false, graph::state_update(graph, id) == graph::StateUpdate::per_rank);
  }
  struct Field {
    double bytes = 0, size = 0, layers = 1;
    bool parameter = false, stacked = false, per_rank = false;
  };
  std::map<std::string, Field> const& fields() const noexcept { return fields_; }

 private:
  void add(graph::Graph const& graph, graph::Id id, bool parameter, bool stacked, bool per_rank) {
    Shape const shape = graph.shape(id);
    auto const size = static_cast<double>(shape.size());
    Field& field = fields_[std::string(graph.name(id))];
    field = {.bytes = size * static_cast<double>(size_of(graph.dtype(id))),
             .size = size,
             .layers = stacked ? static_cast<double>(shape[0]) : 1,
             .parameter = parameter,
             .stacked = stacked,
             .per_rank = per_rank};
  }
  std::map<std::string, Field> fields_;
};

/// Bytes of a program's fields that its AdamW updates write: of moments, those that a rank has under ZeRO 1.
inline double updated_bytes(graph::StepList const& list, std::set<std::string> const& fields) {
  double bytes = 0;
  for (graph::Step const& step : list.steps) {
    if (step.kind != graph::StepKind::adamw) continue;
    for (graph::Ref const& ref : step.writes) {
      if (!ref) continue;
      graph::Buffer const& root = list[list.home(ref.buffer).root];
      if (root.pool != graph::Pool::state) continue;
      if (fields.contains(list.fields[static_cast<std::size_t>(root.entry)].name))
        bytes += static_cast<double>(ref.bytes());
    }
  }
  return bytes;
}

/// Errors: configuration, for layers that are not those of the model, one at least for each part.
inline void require_layers(Layout const& layout, std::int64_t layers, std::source_location where) {
  std::int64_t sum = 0, parts = std::int64_t{layout.pipeline} * layout.chunks;
  for (std::int64_t part : layout.layers) sum += part;
  if (sum != layers || static_cast<std::int64_t>(layout.layers.size()) != parts)
    throw Error(ErrorKind::configuration, "plan",
                concat("layers= of ", parts, " parts must be as many numbers, and add up to the ", layers, " layers"),
                where);
}
inline std::int64_t most_layers(Layout const& layout) {
  parallel::PipelineLayout const stages = layout.stages();
  std::int64_t most = 0;
  for (int stage = 0; stage < layout.pipeline; ++stage) most = std::max(most, stages.layers_on(stage));
  return most;
}

template <class Config>
double channels_of(Config const& config) {
  if constexpr (requires { config.channels; }) return static_cast<double>(config.channels);
  else return 0;
}

}  // namespace detail

/// Compiles what a rank of the layout runs; of a pipeline the middle of it, a stage with its share of the layers and
/// with embedding and head, whose times and memory the stages are made of. `options.batch` is of one rank and
/// micro-step; `tensor`, `micro_steps` and `state_ranks` are set here.
/// Errors: configuration, unavailable: what ranks of the axis cannot divide.
template <class Loss>
RankPrograms compile_programs(typename Loss::Config config, train::TrainStepOptions options,
                              optim::AnyOptimizer const& optimizer, Layout const& layout, Cluster const& cluster,
                              std::source_location where = std::source_location::current()) {
  RankPrograms result;
  options.tensor = layout.tensor;
  options.micro_steps = layout.pipeline > 1 ? 1 : layout.micro_steps;
  if (options.evaluation_batch == 0) options.evaluation_batch = options.batch;
  if constexpr (requires { config.layers; }) {
    std::int64_t const divisor = std::int64_t{layout.pipeline} * layout.chunks;
    if (!layout.layers.empty()) detail::require_layers(layout, config.layers, where);
    else if (config.layers % divisor != 0)
      throw Error(ErrorKind::configuration, "plan",
                  concat(layout.pipeline, " stages", layout.chunks > 1 ? concat(" of ", layout.chunks, " chunks") : "",
                         " do not divide the ", config.layers, " layers"), where);
    result.layers = config.layers;
    config.layers = layout.layers.empty() ? config.layers / layout.pipeline : detail::most_layers(layout);
    result.stage_layers = config.layers;
  } else if (layout.pipeline > 1) {
    throw Error(ErrorKind::unavailable, "plan", "the model has no layers that stages could share out", where);
  }
  bool const device = cluster.device.kind == DeviceKind::cuda;
  result.target = device ? graph::Target::cuda : graph::Target::cpu;
  result.gathers = layout.zero >= 2 && !device && layout.data > 1;
  if (result.gathers) options.state_ranks = layout.data;
  options.gather_again = layout.zero == 3 || layout.pipeline > 1;
  train::require_sound(options, where);
  graph::Graph const model = train::loss_graph<Loss>(config, options, false, where);
  parallel::RankParts const parts = train::parts_of(config, model, options, where);
  auto const traced = [&](std::optional<optim::Pass> pass) {
    return train::step_graph<Loss>(config, options, optimizer, parts, pass, layout.data);
  };

  detail::PlannedState state;
  std::set<std::string> whole;    // fields that every rank updates whole
  std::set<std::string> moments;  // of updates that ranks can share out
  graph::CompileOptions compiling;
  compiling.target = result.target;
  compiling.bucket_bytes = options.bucket_bytes;
  int const ranks_on_node = std::min(cluster.devices_per_node, layout.ranks());
  bool const one_state = cluster.shared_state && !device && layout.tensor == 1 && layout.pipeline == 1 &&
                         layout.zero == 0 && ranks_on_node > 1 && options.offload_optimizer.empty();
  if (one_state) compiling.division = {0, ranks_on_node, ranks_on_node == layout.data};
  if (layout.zero == 1 && !device && layout.data > 1) compiling.division = {0, layout.data, true, true};

  std::vector<graph::Program const*> all;
  using optim::Pass;
  std::vector<std::pair<Pass, std::int64_t>> passes{{options.micro_steps == 1 ? Pass::whole : Pass::first, 1}};
  if (options.micro_steps > 2) passes.push_back({Pass::middle, options.micro_steps - 2});
  if (options.micro_steps > 1) passes.push_back({Pass::last, 1});
  result.passes.reserve(passes.size());
  for (auto const& [pass, runs] : passes) {
    graph::Graph const graph = traced(pass);
    state.add(graph);
    if (pass == Pass::whole || pass == Pass::last)
      for (graph::Update const& update : graph.updates) {
        std::string const name(graph.name(update.target));
        if (!graph::is_divisible(graph, update)) whole.insert(name);
        else if (graph.op(update.target) == graph::Op::state) moments.insert(name);
      }
    result.passes.push_back({runs, graph::compile(graph, compiling)});
    all.push_back(&result.passes.back().program);
  }
  graph::Graph const evaluated = traced(std::nullopt);
  state.add(evaluated);
  graph::CompileOptions plain;
  plain.target = result.target;
  graph::Program const evaluation = graph::compile(evaluated, plain);
  all.push_back(&evaluation);

  Memory& memory = result.memory;
  double accumulated = 0;
  for (auto const& [name, field] : state.fields()) {
    bool const sum = optim::is_accumulator(name);
    (field.parameter || sum ? memory.parameters : memory.moments) += field.bytes;
    accumulated += sum ? field.bytes : 0;
    if (field.parameter) result.parameters += field.size, result.names.insert(name);
    if (field.parameter && field.stacked) result.layer_parameters += field.size / field.layers;
    if (one_state && !field.per_rank && !sum && !whole.contains(name)) memory.shared += field.bytes;
  }
  memory.workspace = static_cast<double>(train::memory_of(all));
  if (options.keep_packed && options.micro_steps > 1)
    memory.workspace += static_cast<double>(graph::kept_bytes(result.passes.front().program.list));
  memory.tokens = 8.0 * static_cast<double>(options.batch * layout.micro_steps * options.sequence);
  memory.process = cluster.process_memory;

  // ZeRO as the programs have it; on devices further stages by their shares (Rajbhandari et al. 2020).
  double const others = 1 - 1.0 / layout.data;
  if (compiling.division.gathers) {
    double mine = detail::updated_bytes(result.passes.back().program.list, moments), owned = 0;
    for (std::string const& name : moments) owned += state.fields().at(name).bytes;
    memory.moments -= owned - mine;
  } else if (layout.zero >= 1 && !result.gathers) {
    memory.moments -= memory.moments * others;
  }
  if (layout.zero >= 2 && !result.gathers) {
    auto const gradients = static_cast<double>(result.passes.back().program.plan.communicator_bytes);
    memory.workspace -= gradients * others;
    memory.parameters -= accumulated * others;
  }
  if (!options.offload_optimizer.empty()) {  // in files
    memory.moments = 0;
    memory.parameters -= accumulated;
    accumulated = 0;
  }
  if (layout.zero == 3 && !result.gathers) {
    double const parameters = memory.parameters - accumulated / layout.data;
    double const gathered = 2 * 4 * result.layer_parameters;  // of this layer, and of the next one
    memory.parameters -= parameters * others - std::min(gathered, parameters * others);
  }
  double const element = options.compute == DType::bfloat16 && device ? 2 : 4;
  result.boundary = element * static_cast<double>(options.batch * options.sequence) * detail::channels_of(config);
  return result;
}

}  // namespace tutti::plan
