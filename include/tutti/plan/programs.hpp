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
#include <tutti/train/stage_programs.hpp>
#include <tutti/train/step_graph.hpp>
#include <tutti/train/step_programs.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plan {

/// Of one rank, in bytes.
struct Memory {
  double parameters = 0;  ///< and their gradients' sums between micro-steps
  double moments = 0;
  double workspace = 0;   ///< activations, gradients, temporaries
  double tokens = 0;      ///< of a step's batch, and of messages between stages
  double messages = 0;    ///< what the library keeps of collectives under way
  double process = 0;     ///< program, libraries, stacks
  double shared = 0;      ///< of parameters and moments, what the ranks of a node have one copy of

  /// What a rank needs: of what is shared, its part of the node's copy.
  double rank(int ranks_on_node) const noexcept {
    return parameters + moments + workspace + tokens + messages + process - shared * (1 - 1.0 / ranks_on_node);
  }
};

struct RankPrograms {
  struct Pass {
    std::int64_t runs = 1;  ///< in a step
    graph::Program program;
  };
  std::vector<Pass> passes;  ///< as StepPrograms has them; the last one updates. None of a pipeline
  std::vector<train::CompiledStage> stages;  ///< of a pipeline: those that differ
  std::vector<std::size_t> stage;            ///< by its number: which of these it is
  struct Shared {
    double bytes = 0;         ///< of a gradient
    std::vector<int> stages;  ///< that add it up
  };
  std::vector<Shared> sums;
  std::vector<Memory> memory;   ///< of a rank; of a pipeline of one of each stage
  std::set<std::string> names;  ///< of parameters
  double parameters = 0;        ///< numbers of the whole model
  double layer_parameters = 0;  ///< of one layer on a rank
  graph::Target target = graph::Target::cpu;
  bool gathers = false;         ///< under ZeRO 2 and 3: they gather parameters and scatter gradients themselves

  /// Of the rank that needs most.
  Memory const& most_memory(int ranks_on_node) const {
    return *std::max_element(memory.begin(), memory.end(), [&](Memory const& a, Memory const& b) {
      return a.rank(ranks_on_node) < b.rank(ranks_on_node);
    });
  }
  /// What a rank runs in a step, in this order; of a pipeline what one of each stage that differs does, where nobody
  /// waits.
  std::vector<std::vector<graph::Program const*>> sequences(std::int64_t micro_steps) const {
    std::vector<std::vector<graph::Program const*>> all;
    if (stages.empty()) all.emplace_back();
    for (Pass const& pass : passes)
      for (std::int64_t run = 0; run < pass.runs; ++run) all[0].push_back(&pass.program);
    for (train::CompiledStage const& one : stages) {
      auto& sequence = all.emplace_back();
      for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
        auto const& parts = one.parts.programs;
        for (auto part = parts.begin(); part != parts.end(); ++part) sequence.push_back(&part->forward);
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
          if (part->splits) sequence.push_back(&part->inputs);
          sequence.push_back(&part->backward);
        }
      }
      sequence.push_back(&one.update);
    }
    return all;
  }
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

}  // namespace detail

namespace detail {

/// A layout of a model, while its programs are compiled.
template <class Loss>
class Compilation {
 public:
  using Config = typename Loss::Config;
  using Where = std::source_location;

  Compilation(Config const& config, train::TrainStepOptions const& options, optim::AnyOptimizer const& optimizer,
              Layout const& layout, Cluster const& cluster, Where where)
      : config_(config), options_(options), optimizer_(optimizer), layout_(layout), cluster_(cluster), where_(where) {
    bool const device = cluster.device.kind == DeviceKind::cuda;
    result_.target = device ? graph::Target::cuda : graph::Target::cpu;
    result_.gathers = layout.zero >= 2 && !device && layout.data > 1;
    options_.tensor = layout.tensor;
    options_.micro_steps = layout.micro_steps;
    options_.pipeline = layout.stages();
    if (result_.gathers) options_.state_ranks = layout.data;
    options_.gather_again = layout.zero == 3;
    if (options_.evaluation_batch == 0) options_.evaluation_batch = options_.batch;
    train::require_sound(options_, where);
    if (!device) train::require_possible(options_, true, true, true, where);
    if (device && layout.zero >= 2 && layout.pipeline > 1)
      throw Error(ErrorKind::unavailable, "plan",
                  "stages of a pipeline that share out parameters are planned on processors alone. Use zero=1", where);
    ranks_on_node_ = std::min(cluster.devices_per_node, layout.ranks());
    one_state_ = cluster.shared_state && !device && layout.tensor == 1 && layout.pipeline == 1 && layout.zero == 0 &&
                 ranks_on_node_ > 1 && options.offload_optimizer.empty();
    if (one_state_) division_ = {0, ranks_on_node_, ranks_on_node_ == layout.data};
    if (layout.zero == 1 && !device && layout.data > 1) division_ = {0, layout.data, true, true};
  }

  RankPrograms run() {
    graph::Graph const model = train::loss_graph<Loss>(config_, options_, false, where_);
    for (graph::Parameter const& parameter : model.parameters) {
      result_.names.insert(std::string(model.name(parameter.node)));
      result_.parameters += static_cast<double>(model.shape(parameter.node).size());
    }
    parts_ = train::parts_of(config_, model, options_, where_);
    if (layout_.pipeline > 1) stages(model);
    else passes();
    return std::move(result_);
  }

 private:
  void passes() {
    auto const traced = [&](std::optional<optim::Pass> pass) {
      return train::step_graph<Loss>(config_, options_, optimizer_, parts_, pass, layout_.data);
    };
    using optim::Pass;
    PlannedState state;
    graph::CompileOptions compiling;
    compiling.target = result_.target;
    compiling.bucket_bytes = options_.bucket_bytes;
    compiling.division = division_;
    std::vector<std::pair<Pass, std::int64_t>> kinds{{options_.micro_steps == 1 ? Pass::whole : Pass::first, 1}};
    if (options_.micro_steps > 2) kinds.push_back({Pass::middle, options_.micro_steps - 2});
    if (options_.micro_steps > 1) kinds.push_back({Pass::last, 1});
    graph::Graph update;
    for (auto const& [pass, runs] : kinds) {
      update = traced(pass);
      state.add(update);
      result_.passes.push_back({runs, graph::compile(update, compiling)});
    }
    std::vector<graph::Program const*> all;
    for (RankPrograms::Pass const& pass : result_.passes) all.push_back(&pass.program);
    graph::Graph const evaluated = traced(std::nullopt);
    state.add(evaluated);
    graph::CompileOptions plain;
    plain.target = result_.target;
    graph::Program const evaluation = graph::compile(evaluated, plain);
    all.push_back(&evaluation);
    graph::Program const& last = result_.passes.back().program;
    Memory memory = memory_of(state, update, last);
    memory.workspace += static_cast<double>(train::memory_of(all));
    if (options_.keep_packed && options_.micro_steps > 1)
      memory.workspace += static_cast<double>(graph::kept_bytes(result_.passes.front().program.list));
    result_.memory.push_back(memory);
  }
  void stages(graph::Graph const& model) {
    auto const part = [&](graph::Graph const& whole) { return train::part_graph(whole, options_, parts_); };
    train::PipelineModel const pipeline(part(model), part(train::loss_graph<Loss>(config_, options_, true, where_)),
                                        optimizer_, options_, where_);
    std::map<std::vector<std::int64_t>, std::size_t> known;  // by what makes stages differ
    for (int stage = 0; stage < layout_.pipeline; ++stage) {
      parallel::PipelineCut const& cut = pipeline.cut();
      std::vector<std::int64_t> kind{stage == 0, stage + 1 == layout_.pipeline};
      for (int of = stage; of < cut.parts(); of += layout_.pipeline) kind.push_back(cut.layers_of(of));
      auto const [found, added] = known.emplace(kind, result_.stages.size());
      if (added) result_.stages.push_back(pipeline.compile(stage, layout_.data, division_, result_.target));
      result_.stage.push_back(found->second);
      train::CompiledStage& compiled = result_.stages[found->second];
      compiled.layout.stage = stage;
      PlannedState state;
      graph::Graph const update = pipeline.update(stage, layout_.data);
      state.add(pipeline.fields(stage));
      state.add(update);
      Memory memory = memory_of(state, update, compiled.update);
      memory.workspace += static_cast<double>(train::memory_of(compiled.all()) +
                                              compiled.activation_bytes(options_.micro_steps));
      // A message from either side is received beside those that are in use.
      memory.tokens += static_cast<double>(compiled.message_bytes(0, true) + compiled.message_bytes(0, false));
      result_.memory.push_back(memory);
    }
    for (parallel::StageSum const& sum : pipeline.sums())
      for (graph::Parameter const& parameter : pipeline.cut().model().parameters)
        if (sum.field == concat("accumulated.", pipeline.cut().model().name(parameter.node)))
          result_.sums.push_back({4 * static_cast<double>(pipeline.cut().model().shape(parameter.node).size()),
                                  {sum.stages.begin(), sum.stages.end()}});
  }

  /// Of everything but the workspace. `update` is the graph of the program that updates.
  Memory memory_of(PlannedState const& state, graph::Graph const& update, graph::Program const& program) {
    std::set<std::string> whole;    // fields that every rank updates whole
    std::set<std::string> moments;  // of updates that ranks can share out
    for (graph::Update const& one : update.updates) {
      std::string const name(update.name(one.target));
      if (!graph::is_divisible(update, one)) whole.insert(name);
      else if (update.op(one.target) == graph::Op::state) moments.insert(name);
    }
    Memory memory;
    double accumulated = 0;
    result_.layer_parameters = 0;
    for (auto const& [name, field] : state.fields()) {
      bool const sum = optim::is_accumulator(name);
      (field.parameter || sum ? memory.parameters : memory.moments) += field.bytes;
      accumulated += sum ? field.bytes : 0;
      if (field.parameter && field.stacked) result_.layer_parameters += field.size / field.layers;
      if (one_state_ && !field.per_rank && !sum && !whole.contains(name)) memory.shared += field.bytes;
    }
    memory.tokens = 8.0 * static_cast<double>(options_.batch * layout_.micro_steps * options_.sequence);
    memory.process = cluster_.process_memory;

    // ZeRO as the programs have it; on devices further stages by their shares (Rajbhandari et al. 2020).
    double const others = 1 - 1.0 / layout_.data;
    if (division_.gathers) {
      double mine = updated_bytes(program.list, moments), owned = 0;
      for (std::string const& name : moments) owned += state.fields().at(name).bytes;
      memory.moments -= owned - mine;
    } else if (layout_.zero >= 1 && !result_.gathers) {
      memory.moments -= memory.moments * others;
    }
    if (layout_.zero >= 2 && !result_.gathers) {
      auto const gradients = static_cast<double>(program.plan.communicator_bytes);
      memory.workspace -= gradients * others;
      memory.parameters -= accumulated * others;
    }
    if (!options_.offload_optimizer.empty()) {  // in files
      memory.moments = 0;
      memory.parameters -= accumulated;
      accumulated = 0;
    }
    if (layout_.zero == 3 && !result_.gathers) {
      double const parameters = memory.parameters - accumulated / layout_.data;
      double const gathered = 2 * 4 * result_.layer_parameters;  // of this layer, and of the next one
      memory.parameters -= parameters * others - std::min(gathered, parameters * others);
    }
    return memory;
  }

  Config const& config_;
  train::TrainStepOptions options_;
  optim::AnyOptimizer const& optimizer_;
  Layout const& layout_;
  Cluster const& cluster_;
  Where where_;
  int ranks_on_node_ = 1;
  bool one_state_ = false;
  graph::Division division_;
  parallel::RankParts parts_;
  RankPrograms result_;
};

}  // namespace detail

/// Compiles what the ranks of the layout run: those of one stage after the other, where there is a pipeline.
/// `options.batch` is of one rank and micro-step; `tensor`, `pipeline`, `micro_steps` and `state_ranks` are set here.
/// Errors: configuration, unavailable: what ranks of the axes cannot divide.
template <class Loss>
RankPrograms compile_programs(typename Loss::Config const& config, train::TrainStepOptions const& options,
                              optim::AnyOptimizer const& optimizer, Layout const& layout, Cluster const& cluster,
                              std::source_location where = std::source_location::current()) {
  return detail::Compilation<Loss>(config, options, optimizer, layout, cluster, where).run();
}

}  // namespace tutti::plan
